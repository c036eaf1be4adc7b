//! What is broken, in an order that a seed decides.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::MAX_LAG;
use super::world::{PROCESSES, World};
use crate::support::assert_eventually;
use crate::support::chaos_proxy::{ChaosProxy, Weather};
use crate::support::redis_pair::RedisPair;
use crate::support::wait::Wait;

/// How long something is waited for that takes a moment.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// 15 % of the reads of the log are never answered.
    LogReads,
    /// That, a round trip of 800 ms, and 12 % of the segments are lost.
    SlowAndLossy,
    /// Connections are reset again and again.
    Cuts,
    /// One instance is cut off from Redis, which it is not told.
    Partition,
    /// Redis is killed, and comes back with nothing.
    RedisKilled,
    /// The primary dies, and its replica lacks what was announced last.
    Failover,
    /// The same while both live, there and back, and one instance sees nothing of it.
    FailoverAndBack,
    /// An instance is killed, and starts again.
    ProcessKilled,
    /// An instance stands still.
    ProcessPaused,
}

pub const ALL: [Fault; 9] = [
    Fault::LogReads,
    Fault::SlowAndLossy,
    Fault::Cuts,
    Fault::Partition,
    Fault::RedisKilled,
    Fault::Failover,
    Fault::FailoverAndBack,
    Fault::ProcessKilled,
    Fault::ProcessPaused,
];

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::LogReads => "15 % of the log reads dropped",
            Self::SlowAndLossy => "RTT 800 ms, 12 % loss, 15 % of the log reads dropped",
            Self::Cuts => "connections cut",
            Self::Partition => "one instance cut off",
            Self::RedisKilled => "Redis killed, back empty",
            Self::Failover => "failover that loses entries",
            Self::FailoverAndBack => "failover and back",
            Self::ProcessKilled => "process killed",
            Self::ProcessPaused => "process paused",
        }
    }
}

/// Breaks one thing after another; each has had its turn before this ends, and then it ends as soon as `enough`.
pub async fn walk(world: Arc<World>, mut redis: RedisPair, seed: u64, enough: impl Fn() -> bool) -> RedisPair {
    let mut dice = StdRng::seed_from_u64(seed);
    loop {
        let mut deck = ALL;
        deck.shuffle(&mut dice);
        for fault in deck {
            *world.fault.lock() = fault.name();
            strike(fault, &world, &mut redis, &mut dice).await;
            redis.everywhere(Weather::default());
            // Now and then the next one comes before this one is over.
            if dice.random_bool(0.5) {
                world.wait_until_all_enforce().await;
                pause(&mut dice, 500, 2_000).await;
            }
        }
        if enough() {
            return redis;
        }
    }
}

/// The time itself is the fault: how long it lasts.
async fn pause(dice: &mut StdRng, least: u64, most: u64) {
    tokio::time::sleep(Duration::from_millis(dice.random_range(least..most))).await;
}

async fn strike(fault: Fault, world: &Arc<World>, redis: &mut RedisPair, dice: &mut StdRng) {
    let one = dice.random_range(0..PROCESSES);
    match fault {
        Fault::LogReads => {
            redis.everywhere(Weather { unanswered: 0.15, ..Weather::default() });
            pause(dice, 2_000, 4_000).await;
            reads_are_dropped(redis).await;
        }
        Fault::SlowAndLossy => {
            redis.everywhere(Weather {
                round_trip: Duration::from_millis(800),
                loss: 0.12,
                unanswered: 0.15,
                ..Weather::default()
            });
            pause(dice, 4_000, 6_000).await;
        }
        Fault::Cuts => {
            for _ in 0..10 {
                redis.faces[dice.random_range(0..PROCESSES)].cut();
                pause(dice, 50, 500).await;
            }
        }
        Fault::Partition => {
            redis.faces[one].set(Weather { black_hole: true, ..Weather::default() });
            // The time itself is tested: no read that was sent since then has been answered.
            tokio::time::sleep(MAX_LAG).await;
            does_not_enforce(world, one).await;
            pause(dice, 0, 2_000).await;
        }
        Fault::RedisKilled => {
            let before = noticed(world).await;
            redis.kill_and_restart(Duration::from_millis(dice.random_range(0..3_000))).await;
            all_notice(world, &before).await;
        }
        Fault::Failover => {
            let before = noticed(world).await;
            redis.hold_replica_back();
            redis.replica_lacks(5).await;
            redis.fail_over().await;
            all_notice(world, &before).await;
        }
        Fault::FailoverAndBack => {
            let before = noticed(world).await;
            redis.faces[one].set(Weather { black_hole: true, ..Weather::default() });
            redis.change_places().await;
            redis.hold_replica_back();
            redis.replica_lacks(5).await;
            redis.change_places().await;
            redis.faces[one].heal();
            all_notice(world, &before).await;
        }
        Fault::ProcessKilled => {
            let world = Arc::clone(world);
            // It comes back with what its journal and the log hold.
            tokio::task::spawn_blocking(move || world.instances[one].launch()).await.unwrap();
        }
        Fault::ProcessPaused => {
            world.instances[one].signal("STOP");
            pause(dice, 500, 6_000).await;
            world.instances[one].signal("CONT");
        }
    }
}

async fn does_not_enforce(world: &World, instance: usize) {
    if world.trouble(instance).await.is_none() {
        world.wrong(format!("{instance} says that it enforces, and can't know what was announced"));
    }
}

async fn noticed(world: &World) -> Vec<Option<f64>> {
    futures_util::future::join_all((0..PROCESSES).map(|instance| world.noticed(instance))).await
}

/// Waits until every instance has noticed that entries may have been lost.
async fn all_notice(world: &World, before: &[Option<f64>]) {
    for (instance, before) in before.iter().enumerate().filter_map(|(instance, before)| Some((instance, (*before)?))) {
        let wait = Wait::within(PATIENCE);
        while world.noticed(instance).await.is_none_or(|now| now <= before) {
            if wait.is_over() {
                return world.wrong(format!("{instance} has not noticed that entries were lost"));
            }
            wait.pause().await;
        }
    }
}

/// Waits until a read of the log by each instance was dropped.
async fn reads_are_dropped(redis: &RedisPair) {
    let dropped = |face: &Arc<ChaosProxy>| face.known().1;
    let before: Vec<u64> = redis.faces.iter().map(dropped).collect();
    assert_eventually!(
        within PATIENCE => redis.faces.iter().map(dropped).zip(&before).all(|(now, before)| now != *before),
        "the reads of the log are not known any more"
    );
}
