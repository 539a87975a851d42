//! What the operating system says about the process.

use super::exposition::Exposition;

/// Adds memory, threads and open files, where Linux tells them.
pub(crate) fn gather(to: &mut Exposition) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    if let Some(kibibytes) = field(&status, "VmRSS:") {
        to.number("process_resident_memory_bytes", kibibytes * 1024);
    }
    if let Some(threads) = field(&status, "Threads:") {
        to.number("process_threads", threads);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        to.number("process_open_fds", files.count());
    }
}

/// The number after a name.
fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_number_after_its_name() {
        let status = "VmRSS:\t   1234 kB\nThreads:\t7\nName:\tx\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "Threads:")), (Some(1234), Some(7)));
        assert_eq!((field(status, "Name:"), field(status, "None:")), (None, None));
    }
}
