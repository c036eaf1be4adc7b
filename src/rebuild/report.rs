//! Shows a running rebuild: a bar on a terminal, log lines otherwise.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress::Tracker;

/// Time between two log lines.
const LINES_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at the bar.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Shows the progress until dropped.
pub(super) async fn show(keyspace: &str, tracker: Arc<Tracker>) {
    if std::io::stderr().is_terminal() {
        show_bar(keyspace, &tracker).await
    } else {
        show_lines(keyspace, &tracker).await
    }
}

async fn show_bar(keyspace: &str, tracker: &Tracker) {
    let bar = Cleared(ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()));
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {wide_bar} {human_pos}/{human_len} keys  {per_sec}  eta {eta}")
    {
        bar.0.set_style(style);
    }
    bar.0.set_prefix(format!("building {keyspace}"));
    loop {
        tokio::time::sleep(BAR_EVERY).await;
        let running = tracker.running();
        bar.0.set_length(running.keys_expected.unwrap_or(0));
        bar.0.set_position(running.keys_read);
    }
}

/// Clears the bar when it is dropped, also with its future.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

async fn show_lines(keyspace: &str, tracker: &Tracker) {
    loop {
        tokio::time::sleep(LINES_EVERY).await;
        let running = tracker.running();
        tracing::info!(
            keyspace,
            job = running.job,
            keys_read = running.keys_read,
            keys_expected = running.keys_expected,
            keys_per_second = running.keys_per_second.round(),
            percent = running.percent.map(f64::round),
            eta_seconds = running.eta_seconds.map(f64::round),
            "building the filter"
        );
    }
}
