//! Rows that are announced, committed and read, and rows that are changed and invalidated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::world::{PROCESSES, Told, World, count};
use super::{DEADLINE, HOT_TTL, MAX_LAG, WINDOW};

/// Readers of before a commit are not waited for any longer: the commit window runs.
const BEFORE_COMMIT: Duration = Duration::from_millis(500);
/// Pause before a refused request is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// Rows from one end of time to the other.
pub async fn write_rows(world: Arc<World>, next: Arc<AtomicU64>) {
    while !world.is_over() {
        write_and_read(&world, next.fetch_add(1, Ordering::Relaxed)).await;
    }
}

/// One row, from its announce to its last reader.
async fn write_and_read(world: &World, id: u64) {
    let path = format!("/v1/keys/users/{id}");
    let mut writer = id as usize % PROCESSES;
    let (sent, version) = loop {
        let (sent, version) = announce(world, &path, &mut writer).await;
        // Before the commit, 404 is right, and no instance may remember it. A request without an answer by then goes on
        // alone.
        let ask = |instance| tokio::time::timeout(BEFORE_COMMIT, world.ask("GET", instance, &path, &[], ""));
        let early = futures_util::future::join_all((0..PROCESSES).map(ask)).await;
        let answers = early.iter().flatten().flatten();
        let absent = answers.filter(|told| told.status == 404 && told.source == "filter").count();
        world.counts.rejected_before_commit.fetch_add(absent as u64, Ordering::Relaxed);
        // A writer that sees its window close announces again.
        if sent.elapsed() < WINDOW * 3 / 4 {
            break (sent, version);
        }
    };
    let acknowledged = Instant::now();
    sqlx::query("INSERT INTO users VALUES ($1, 'new')").bind(id as i64).execute(&world.database).await.unwrap();
    if sent.elapsed() > WINDOW {
        // Outside the commit window nothing is promised.
        return count(&world.counts.late_commits);
    }
    count(&world.counts.committed);
    let answers = world.ask_all(&path, &[("bloomguard-min-version", &version)]).await;
    judge(world, answers, &world.counts.found_by_version, &format!("{id} with its version"));
    // The time itself is tested: after `max_lag` every instance knows the row.
    tokio::time::sleep(MAX_LAG.saturating_sub(acknowledged.elapsed())).await;
    judge(world, world.ask_all(&path, &[]).await, &world.counts.found_by_time, &format!("{id} after max_lag"));
}

/// Announces until that is acknowledged; returns when the announce was sent, and its version.
async fn announce(world: &World, path: &str, writer: &mut usize) -> (Instant, String) {
    loop {
        let sent = Instant::now();
        if let Some(Told { status: 204, version, .. }) = world.ask("PUT", *writer, path, &[], "").await {
            return (sent, version);
        }
        count(&world.counts.refused_announces);
        *writer = (*writer + 1) % PROCESSES;
        tokio::time::sleep(PAUSE).await;
    }
}

fn judge(world: &World, answers: Vec<Option<Told>>, found: &AtomicU64, what: &str) {
    for (instance, answer) in answers.into_iter().enumerate() {
        match answer {
            Some(Told { status: 200, .. }) => count(found),
            Some(Told { status: 503, .. }) | None => count(&world.counts.no_answer),
            Some(told) => world.wrong(format!("{what} at {instance}: {} {}", told.status, told.source)),
        }
    }
}

/// A row that this task alone changes, again and again.
pub async fn change_row(world: Arc<World>, id: u32) {
    let path = format!("/v1/keys/users/{id}");
    for version in 1.. {
        if world.is_over() {
            return;
        }
        // So that there is something to invalidate.
        world.ask_all(&path, &[]).await;
        let name = format!("version {version}");
        sqlx::query("UPDATE users SET name = $1 WHERE id = $2")
            .bind(&name)
            .bind(i64::from(id))
            .execute(&world.database)
            .await
            .unwrap();
        let writer = invalidate(&world, id, version).await;
        let invalidated = Instant::now();
        count(&world.counts.invalidated);
        // An instance that applied the drop never answers the old value. The writer has.
        match world.ask("GET", writer, &path, &[], "").await {
            Some(Told { status: 200, body, .. }) if body.contains(&name) => count(&world.counts.new_at_once),
            Some(Told { status: 503, .. }) | None => count(&world.counts.no_answer),
            Some(told) => world
                .wrong(format!("{id} is {name} at {writer} at once: {} {} {}", told.status, told.source, told.body)),
        }
        let others = world.ask_all(&path, &[]).await;
        let old = others.iter().flatten().filter(|told| told.status == 200 && !told.body.contains(&name)).count();
        world.counts.old_elsewhere_within_hot_ttl.fetch_add(old as u64, Ordering::Relaxed);
        // A load that had begun before may have stored the old value hot until its deadline; the jitter spreads
        // lifetimes by a tenth. The time itself is tested: after that no instance has the old value.
        tokio::time::sleep((HOT_TTL.mul_f64(1.1) + DEADLINE).saturating_sub(invalidated.elapsed())).await;
        for (instance, answer) in world.ask_all(&path, &[]).await.into_iter().enumerate() {
            match answer {
                Some(Told { status: 200, body, .. }) if body.contains(&name) => count(&world.counts.new_everywhere),
                Some(Told { status: 503, .. }) | None => count(&world.counts.no_answer),
                Some(told) => world.wrong(format!(
                    "{id} is {name} at {instance} after hot_ttl: {} {} {}",
                    told.status, told.source, told.body
                )),
            }
        }
    }
}

/// Invalidates until that is acknowledged; returns the instance that did it.
async fn invalidate(world: &World, id: u32, version: usize) -> usize {
    let json = [("content-type", "application/json")];
    for attempt in 0.. {
        let writer = (id as usize + version + attempt) % PROCESSES;
        if world
            .ask("POST", writer, "/v1/invalidate/users", &json, &format!("[{id}]"))
            .await
            .is_some_and(|told| told.status == 204)
        {
            return writer;
        }
        tokio::time::sleep(PAUSE).await;
    }
    unreachable!("it is tried for ever")
}
