//! Process metrics under the names that all Prometheus client libraries share, without our prefix.
//!
//! Hand-written, because the registry's counters are integers and CPU seconds are not. The crate for it records into a
//! global recorder, which we don't have.

use std::fmt::Write;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// What the kernel reports; `None` if it does not, as on systems other than Linux.
#[derive(Debug, Default)]
struct Process {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    start_time: Option<f64>,
    threads: Option<f64>,
    open_fds: Option<f64>,
    max_fds: Option<f64>,
}

/// Field positions in `/proc/self/stat`, counted after the program's name, which may contain anything. See
/// proc_pid_stat(5).
mod stat {
    pub(super) const UTIME: usize = 11;
    pub(super) const STIME: usize = 12;
    pub(super) const THREADS: usize = 17;
    pub(super) const START: usize = 19;
    pub(super) const RSS_PAGES: usize = 21;
}

/// Renders the Prometheus text format.
pub(super) fn render() -> String {
    Process::read().text()
}

impl Process {
    fn read() -> Self {
        let mut process = Self {
            open_fds: open_fds(),
            max_fds: getrlimit(Resource::Nofile).current.map(|limit| limit as f64),
            ..Self::default()
        };
        if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
            process.take_stat(&stat, clock_ticks_per_second() as f64, page_size() as f64);
        }
        let booted = fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_time(&stat));
        process.start_time = process.start_time.zip(booted).map(|(start, booted)| booted + start);
        process
    }

    fn take_stat(&mut self, text: &str, ticks_per_second: f64, page_size: f64) {
        let Some((_, fields)) = text.rsplit_once(')') else { return };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |place: usize| fields.get(place)?.parse::<f64>().ok();
        self.cpu_seconds =
            field(stat::UTIME).zip(field(stat::STIME)).map(|(user, system)| (user + system) / ticks_per_second);
        self.threads = field(stat::THREADS);
        self.start_time = field(stat::START).map(|ticks| ticks / ticks_per_second);
        self.resident_bytes = field(stat::RSS_PAGES).map(|pages| pages * page_size);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in [
            ("process_cpu_seconds_total", "counter", "CPU time of the process in seconds", self.cpu_seconds),
            ("process_resident_memory_bytes", "gauge", "Resident memory of the process", self.resident_bytes),
            ("process_start_time_seconds", "gauge", "Start time of the process as Unix time", self.start_time),
            ("process_threads", "gauge", "Threads of the process", self.threads),
            ("process_open_fds", "gauge", "Open file descriptors", self.open_fds),
            ("process_max_fds", "gauge", "Limit of open file descriptors", self.max_fds),
        ] {
            if let Some(value) = value {
                // Writing to a `String` can't fail.
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
            }
        }
        text
    }
}

/// Unix time of the boot, in seconds.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The descriptor that lists them is not counted.
fn open_fds() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn fields_are_where_the_kernel_writes_them() {
        let line = "42 (a) b) c) S 1 42 42 0 -1 4194560 1117 0 0 0 250 50 0 0 20 0 7 0 1000 10000000 300 18446744073709551615 1 1 0";
        let mut process = Process::default();
        process.take_stat(line, 100.0, 4096.0);
        assert_eq!((process.cpu_seconds, process.threads), (Some(3.0), Some(7.0)));
        assert_eq!((process.start_time, process.resident_bytes), (Some(10.0), Some(300.0 * 4096.0)));
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let process = Process::read();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let started = process.start_time.unwrap();
        // The two clocks are not the same.
        assert!(started < now + 60.0 && started > now - 24.0 * 3600.0, "{started}");
        assert!(process.resident_bytes.unwrap() > 1e6 && process.cpu_seconds.unwrap() >= 0.0);
        assert!(process.threads.unwrap() >= 1.0 && process.open_fds.unwrap() >= 3.0);
        let files: Vec<_> = (0..100).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(open_fds().unwrap() >= 100.0);
        drop(files);
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        assert_eq!(Process::default().text(), "");
        let text = Process { threads: Some(2.0), ..Process::default() }.text();
        assert_eq!(
            text,
            "# HELP process_threads Threads of the process\n# TYPE process_threads gauge\nprocess_threads 2\n\n"
        );
    }
}
