//! Room: the last fifth of a cell belongs to the results of its runs' steps, so that those it has can end. A cell that
//! is fuller than that takes no new runs, no signals that nobody waits for, and nothing that programs publish.

use stepwell_protocol::{Code, Problem, cells::FULL_PERCENT};

use super::{Cell, Rows};
use crate::object::Fault;

/// How much is accepted between two looks at the storage: so many times, and so many bytes.
const LOOK_EVERY: u32 = 16;
const LOOK_EVERY_BYTES: u64 = 1 << 20;

/// What is known of the room that there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// What the storage holds at the most; without a limit, if that is not said.
    limit_bytes: Option<u64>,
    /// How much is accepted before the next look.
    unlooked: u32,
    unlooked_bytes: u64,
}

impl Cell {
    /// A cell whose storage holds so many bytes.
    #[must_use]
    pub fn with_storage(self, limit_bytes: u64) -> Self {
        Self { room: Room { limit_bytes: Some(limit_bytes), ..Room::default() }, ..self }
    }

    /// Refuses something of so many bytes if the cell is nearly full; `what` names all such things.
    pub(super) fn check_room<R: Rows>(
        &mut self,
        rows: &R,
        adding: usize,
        what: &str,
    ) -> Result<(), Fault<R::Error>> {
        let Some(limit_bytes) = self.room.limit_bytes else { return Ok(()) };
        let left = self.room.unlooked.checked_sub(1).zip(self.room.unlooked_bytes.checked_sub(adding as u64));
        if let Some((unlooked, unlooked_bytes)) = left {
            (self.room.unlooked, self.room.unlooked_bytes) = (unlooked, unlooked_bytes);
            return Ok(());
        }
        let bytes = rows.bytes().map_err(Fault::Storage)?;
        if bytes >= limit_bytes / 100 * FULL_PERCENT {
            let detail = format!(
                "The cell has {bytes} bytes and takes no {what} from {FULL_PERCENT} % of {limit_bytes} on; its \
                 runs go on. Let the pool grow (STEPWELL_CELLS), or keep runs for a shorter time."
            );
            return Err(Problem::new(Code::CellFull, detail).into());
        }
        (self.room.unlooked, self.room.unlooked_bytes) = (LOOK_EVERY - 1, LOOK_EVERY_BYTES);
        Ok(())
    }
}
