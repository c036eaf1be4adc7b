//! The runtime and the limits of the process.

use std::time::Duration;

use super::App;
use crate::config::Config;
use crate::reload::{ConfigSource, ReloadTriggers};
use crate::telemetry::LogLevel;
use crate::{quickstart, shutdown};

/// Time for blocked threads at shutdown: a dead disk or a hung source may hold them forever.
const BLOCKED_THREADS_GRACE: Duration = Duration::from_secs(1);

/// Builds the runtime and serves `config` until SIGTERM or SIGINT; reloads it from `source`. The quickstart creates its
/// demo database first and prints a greeting after its first build.
///
/// # Errors
/// As [`App::build`].
pub fn serve(config: Config, source: ConfigSource, log: LogLevel, quickstart: bool) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers(config.server.workers))
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let (shutdown, hangups) = (shutdown::on_signal()?, shutdown::hangups()?);
        if quickstart {
            quickstart::prepare(&config.server.data_dir).await?;
        }
        let mut app = App::build(&config).await?;
        app.reload_on(ReloadTriggers { source, hangups, log }, config);
        if let (true, Some(keyspace)) = (quickstart, app.keyspace(quickstart::KEYSPACE)) {
            let address = app.data.local_addr().to_string();
            app.tasks.spawn(async move { quickstart::greet(keyspace, &address).await });
        }
        app.run(shutdown).await;
        Ok(())
    });
    // Dropping the runtime would wait for blocked threads without a limit.
    runtime.shutdown_timeout(BLOCKED_THREADS_GRACE);
    served
}

/// 0 uses what the cgroup allows, at most 4: more threads only contend for the caches.
fn workers(configured: usize) -> usize {
    if configured > 0 { configured } else { std::thread::available_parallelism().map_or(1, usize::from).min(4) }
}

/// Each connection is a file, and the soft limit is often 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "could not raise open file limit");
    }
}
