//! The memory that is free where a model computes.
//!
//! Knows nothing of what is to be put there; [`super::plan`] does.

use super::Device;
use std::fs;
use std::path::{Path, PathBuf};

impl Device {
    /// Bytes that can still be taken there; `None` where the system does not tell.
    pub fn free_bytes(&self) -> Option<u64> {
        match self.candle() {
            candle_core::Device::Cpu => host_free(Path::new("/")),
            candle_core::Device::Cuda(device) => cuda_free(device),
            candle_core::Device::Metal(device) => metal_free(device),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda_free(device: &candle_core::CudaDevice) -> Option<u64> {
    let free = device.cuda_stream().context().mem_get_info();
    free.ok().map(|(free, _)| free as u64)
}

#[cfg(not(feature = "cuda"))]
fn cuda_free(_: &candle_core::CudaDevice) -> Option<u64> {
    None
}

#[cfg(feature = "metal")]
fn metal_free(device: &candle_core::MetalDevice) -> Option<u64> {
    let device = device.metal_device();
    let taken = device.current_allocated_size();
    Some(
        device
            .recommended_max_working_set_size()
            .saturating_sub(taken) as u64,
    )
}

#[cfg(not(feature = "metal"))]
fn metal_free(_: &candle_core::MetalDevice) -> Option<u64> {
    None
}

/// What the machine has available and the control groups of this process (version 2) allow.
fn host_free(root: &Path) -> Option<u64> {
    let machine = machine_free(root);
    let groups = groups(root);
    let allowed = groups.iter().filter_map(|group| group_free(group));
    machine.into_iter().chain(allowed).min()
}

fn machine_free(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kibibytes = field(&text, "MemAvailable:")?;
    kibibytes.checked_mul(1024)
}

/// The folders of the process's group and of those around it, as far as they are seen from here.
fn groups(root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let top = root.join("sys/fs/cgroup");
    let own = top.join(path.unwrap_or_default());
    own.ancestors()
        .take_while(|folder| folder.starts_with(&top))
        .map(Path::to_owned)
        .collect()
}

/// The group's limit less what cannot be given back; `None` where it has no limit.
fn group_free(group: &Path) -> Option<u64> {
    let number = |name: &str| {
        fs::read_to_string(group.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let limit: u64 = number("memory.max")?;
    let taken: u64 = number("memory.current")?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Pages of files count as taken, and are given up when others need the room.
    let files = ["inactive_file", "active_file"].map(|name| field(&stat, name).unwrap_or(0));
    let kept = files
        .iter()
        .fold(taken, |kept, pages| kept.saturating_sub(*pages));
    Some(limit.saturating_sub(kept))
}

/// The number behind `name` in lines of names and numbers.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(name)).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// A machine with 900 MiB available whose process is in the group `a/b`.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let always = [
            (
                "proc/meminfo",
                "MemTotal: 2048000 kB\nMemAvailable:  921600 kB\n",
            ),
            ("proc/self/cgroup", "0::/a/b\n"),
        ];
        for (path, text) in always.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn what_the_machine_has_available_is_free() {
        let unlimited = [("sys/fs/cgroup/a/b/memory.max", "max\n")];
        assert_eq!(host_free(machine(&unlimited).path()), Some(900 * MIB));
    }

    #[test]
    fn the_tightest_group_limits_it_and_pages_of_files_are_free() {
        let files = [
            ("sys/fs/cgroup/a/memory.max", "419430400"),
            ("sys/fs/cgroup/a/memory.current", "314572800"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 104857600\nactive_file 1048576\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "838860800"),
            ("sys/fs/cgroup/a/b/memory.current", "0"),
        ];
        // 400 MiB, of which 300 are taken, of which 101 are pages of files.
        assert_eq!(host_free(machine(&files).path()), Some(201 * MIB));
    }

    #[test]
    fn a_system_that_does_not_tell_has_no_known_limit() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(host_free(empty.path()), None);
    }
}
