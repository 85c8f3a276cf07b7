//! The program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::program::main(draft_worker::run)
}
