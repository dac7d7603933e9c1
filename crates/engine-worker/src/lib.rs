//! The engine as a Worker of its own. Beside it, so that `stepwell-engine` is a plain library: cargo gives a library that
//! is a module too a file name without a hash, and two checkouts that build in one folder then take each other's.

use stepwell_engine as _;
