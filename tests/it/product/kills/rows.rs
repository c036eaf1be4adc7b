//! Rows that are announced, committed and read, while processes are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{PATIENCE, WINDOW, World, count};

/// Pause before a request without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// One row after another, and between them one of before, at any instance.
pub(super) async fn write_rows(world: Arc<World>, next: Arc<AtomicU64>) {
    while !world.is_over() {
        write_and_read(&world, next.fetch_add(1, Ordering::Relaxed)).await;
        let earlier = {
            let committed = world.committed.lock();
            (!committed.is_empty()).then(|| committed[rand::random_range(0..committed.len())].clone())
        };
        if let Some(row) = earlier {
            let instance = rand::random_range(0..world.addresses.len());
            is_found(&world, instance, row).await;
        }
    }
}

async fn write_and_read(world: &World, id: u64) {
    let writer = id as usize % world.addresses.len();
    let Some((sent, version)) = announce(world, writer, id).await else { return };
    // Most kills come between the announce and the commit.
    // The time itself is drawn: how long the commit takes.
    tokio::time::sleep(Duration::from_millis(rand::random_range(0..200))).await;
    let rejected = world.ask("GET", writer, id + 1_000_000_000, &[]).await;
    if rejected.is_some_and(|answer| answer.told() == "404 filter") {
        count(&world.counts.rejected_before_commit);
    }
    sqlx::query("INSERT INTO users VALUES ($1, 'new')").bind(id as i64).execute(&world.database).await.unwrap();
    if sent.elapsed() > WINDOW {
        // Outside the commit window nothing is promised.
        return count(&world.counts.late_commits);
    }
    // The instance that took the announce needs no version.
    read(world, writer, id, &[]).await;
    for instance in (0..world.addresses.len()).filter(|instance| *instance != writer) {
        is_found(world, instance, (id, version.clone())).await;
    }
    world.committed.lock().push((id, version));
}

/// Announces until that is acknowledged; returns when the announce was sent, and its version.
async fn announce(world: &World, writer: usize, id: u64) -> Option<(Instant, String)> {
    while !world.is_over() {
        let sent = Instant::now();
        match world.ask("PUT", writer, id, &[]).await {
            Some(answer) if answer.status == 204 => {
                return Some((sent, answer.header("bloomguard-version").to_owned()));
            }
            _ => count(&world.counts.refused_announces),
        }
        tokio::time::sleep(PAUSE).await;
    }
    None
}

/// Asks for a committed row, with its version.
pub(super) async fn is_found(world: &World, instance: usize, (id, version): (u64, String)) {
    let headers = [("bloomguard-min-version", version.as_str())];
    read(world, instance, id, if version.is_empty() { &[] } else { &headers }).await;
}

/// Asks until there is an answer, which may not be that the row is absent.
async fn read(world: &World, instance: usize, id: u64, headers: &[(&str, &str)]) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match world.ask("GET", instance, id, headers).await {
            Some(answer) if answer.status == 200 => return count(&world.counts.found),
            None => count(&world.counts.no_answer),
            Some(answer) if answer.status == 503 => count(&world.counts.no_answer),
            Some(answer) => return world.wrong.lock().push(format!("{id} at {instance}: {}", answer.told())),
        }
        tokio::time::sleep(PAUSE).await;
    }
    world.wrong.lock().push(format!("{id} at {instance}: no answer"));
}
