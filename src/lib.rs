//! bm builds many versions of database servers, with exact flags, in parallel, into named prefixes
//! that can prove what they are. ARCHITECTURE.md has the map.

pub mod error;
pub mod exec;
pub mod layout;
pub mod model;
pub mod process;
pub mod server;
pub mod smoke;
