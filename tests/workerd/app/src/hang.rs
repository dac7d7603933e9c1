//! As many workflows as a window has places, each with one step that waits for an address that may never answer.

use stepwell::prelude::*;

use crate::ledger;

macro_rules! hanging {
    ($($name:ident),*) => {
        $(
            /// One step that asks an address, which may take its time over the answer.
            #[workflow]
            pub async fn $name(ctx: Ctx, address: String) -> Result<u16> {
                ctx.step("ask", async || ledger::ask(&address).await).await
            }
        )*

        /// The app with all of them.
        pub fn register(app: App) -> App {
            app$(.workflow($name))*
        }
    };
}

hanging!(hang_1, hang_2, hang_3, hang_4, hang_5, hang_6, hang_7, hang_8, hang_9, hang_10, hang_11, hang_12);
