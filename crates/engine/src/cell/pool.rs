//! Whether the deployment still has as many cells as it began with.
//!
//! A cell remembers how many cells its generation had when it got its first run. Another number later is a mistake:
//! keys would be looked for in the wrong cells, and the runs of cells that are gone would be in no list.

use stepwell_protocol::{Code, Place, Problem};

use super::Host;
use crate::{calls::cell::Operation, object::Fault, settings::Deployment};

impl Host {
    /// How many cells the generation of a place has, as far as this deployment knows of it.
    pub(super) fn cells_of(&self, place: &Place) -> Option<u32> {
        // A setting that cannot be read is refused before anything gets here.
        Deployment::of(&self.env).ok()?.pool.cells_of(place.generation)
    }

    /// Refuses what depends on the number of cells, if that number was changed. Looks once in an instance's life: with
    /// other settings, there is another instance.
    pub(super) fn check_cells(&self, place: &Place, operation: &Operation) -> Result<(), Fault> {
        if self.cells_are_right.get() || !operation.depends_on_cells() {
            return Ok(());
        }
        if let (Some(stored), Some(cells)) = (self.store.cells()?, self.cells_of(place))
            && stored != cells
        {
            let generation = place.generation;
            let detail = format!(
                "STEPWELL_CELLS says that generation {generation} has {cells} cells, but its runs were started with \
                 {stored}. Change that number back to {stored}; add another number at the end if you need more cells."
            );
            return Err(Problem::new(Code::Internal, detail).into());
        }
        self.cells_are_right.set(true);
        Ok(())
    }
}
