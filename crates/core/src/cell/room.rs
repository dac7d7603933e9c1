//! Room for new runs: a cell that is nearly full takes no more of them, so that those it has can end.

use stepwell_protocol::{Code, Problem};

use super::{Cell, Fault, Rows};

/// How full a cell is when it takes no new runs any more, in percent of its storage.
pub const FULL_PERCENT: u64 = 80;

/// How many starts are accepted between two looks at the storage.
const LOOK_EVERY: u32 = 16;

/// What is known of the room that there is.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What the storage holds at the most; without a limit, if that is not said.
    limit_bytes: Option<u64>,
    /// How many starts are accepted before the next look.
    unlooked: u32,
}

impl Cell {
    /// A cell whose storage holds so many bytes.
    #[must_use]
    pub fn with_storage(self, limit_bytes: u64) -> Self {
        Self { room: Room { limit_bytes: Some(limit_bytes), unlooked: 0 }, ..self }
    }

    /// Refuses a new run if the cell is nearly full.
    pub(super) fn check_room<R: Rows>(&mut self, rows: &R) -> Result<(), Fault<R::Error>> {
        let Some(limit_bytes) = self.room.limit_bytes else { return Ok(()) };
        if let Some(unlooked) = self.room.unlooked.checked_sub(1) {
            self.room.unlooked = unlooked;
            return Ok(());
        }
        let bytes = rows.bytes().map_err(Fault::Storage)?;
        if bytes >= limit_bytes / 100 * FULL_PERCENT {
            let detail = format!(
                "The cell has {bytes} bytes and takes no new runs from {FULL_PERCENT} % of {limit_bytes} on; its \
                 runs go on. Let the pool grow (STEPWELL_CELLS), or keep runs for a shorter time."
            );
            return Err(Problem::new(Code::CellFull, detail).into());
        }
        self.room.unlooked = LOOK_EVERY - 1;
        Ok(())
    }
}
