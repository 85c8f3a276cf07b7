//! The program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::program::main(target_worker::run)
}
