//! The processor cores that this process computes on, as coordinators are told: two workers that
//! compete for the same ones are better not made to compute at the same time.

use proto::v1;

/// Says which start of which machine this is.
const MACHINE: &str = "/proc/sys/kernel/random/boot_id";

/// Says, among other things, which cores this process may run on.
const STATUS: &str = "/proc/self/status";

/// What this process computes on, with so many threads. `None` where the system does not tell.
pub(crate) fn processors(threads: usize) -> Option<v1::Processors> {
    let machine = std::fs::read_to_string(MACHINE).ok()?;
    let status = std::fs::read_to_string(STATUS).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(v1::Processors {
        machine: machine.trim().to_owned(),
        cores: cores(list.trim())?,
        threads: u32::try_from(threads).ok()?,
    })
}

/// Cores from a list as the kernel writes it: numbers and ranges, `0-3,8`.
fn cores(list: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cores.extend(first..=last);
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores("0"), Some(vec![0]));
        assert_eq!(cores("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cores("0-x"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_computes_on_some_cores() {
        let told = processors(3).expect("Linux tells");
        let available = std::thread::available_parallelism().expect("Linux tells");
        assert!(!told.machine.is_empty());
        assert!(told.cores.len() >= available.get(), "{told:?}");
        assert_eq!(told.threads, 3);
    }
}
