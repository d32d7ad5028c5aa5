//! What a process has used, as Linux tells it under /proc. `None` where the system does not tell it this way.

/// Processor time of this process so far, in seconds.
pub fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of(std::process::id())
}

/// The same of another process.
pub fn cpu_seconds_of(process: u32) -> Option<f64> {
    cpu_seconds_in(&format!("/proc/{process}/stat"))
}

/// The same of the thread that asks.
pub fn thread_cpu_seconds() -> Option<f64> {
    cpu_seconds_in("/proc/thread-self/stat")
}

fn cpu_seconds_in(path: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(path).ok()?;
    // The second field is a name in parentheses that may hold spaces; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // The clock tick of Linux's user interfaces is 100 to the second on every architecture.
    Some(ticks / 100.0)
}

/// The most memory that a process ever held, in bytes.
pub fn peak_bytes(process: u32) -> Option<f64> {
    status(process, "VmHWM:")
}

/// The memory that a process holds now, in bytes.
pub fn bytes_now(process: u32) -> Option<f64> {
    status(process, "VmRSS:")
}

/// Bytes in MiB.
pub fn mib(bytes: f64) -> f64 {
    bytes / 1024.0 / 1024.0
}

fn status(process: u32, key: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? * 1024.0)
}
