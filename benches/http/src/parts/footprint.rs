//! The footprint of the process: memory, threads, processor time, and the size of the program.

use std::io;
use std::time::Duration;

use super::goals::{Goal, Goals};
use super::{CONNECTIONS, lasts, most_keys, place_self};
use crate::connection::Wire;
use crate::contenders::{Site, program_bytes};
use crate::load::{at_rate, full_speed};
use crate::process::{Placement, Server};
use crate::requests::{Mix, Requests};

const MIB: f64 = (1 << 20) as f64;
/// Memory that the process may use beside its filters.
const BESIDE: f64 = 30.0;
const SIZES: [u64; 4] = [1_000, 1_000_000, 10_000_000, 100_000_000];
const PACE: f64 = 1_000.0;
const LASTS: Duration = Duration::from_secs(5);

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Pinned)?;
    println!(
        "\nMemory with empty caches, MiB; at most {BESIDE:.0} beside the filter, and beside two while one is built\n"
    );
    println!(
        "| keys | filter | resident | beside the filter | at the most during a rebuild | beside two | after a flood \
         of absent keys |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut most = [0.0_f64; 2];
    for keys in SIZES.into_iter().filter(|keys| *keys <= most_keys()) {
        let site = Site::new(Placement::Pinned, keys, None);
        let server = site.start();
        site.enforces();
        site.is_saved();
        let (filter, resident) = (site.metric("bloomguard_filter_bytes") / MIB, server.resident_bytes() as f64 / MIB);
        server.forget_peak();
        site.rebuild();
        let peak = server.peak_bytes() as f64 / MIB;
        let requests = Requests::new(Mix::Absent, Wire::Http);
        full_speed(&site.target(&requests, CONNECTIONS), 16, Duration::ZERO, lasts() * 3)?;
        let flooded = server.resident_bytes() as f64 / MIB;
        let (one, two) = (resident - filter, peak - 2.0 * filter);
        most = [most[0].max(one), most[1].max(two)];
        println!("| {keys} | {filter:.1} | {resident:.1} | {one:.1} | {peak:.1} | {two:.1} | {flooded:.1} |");
    }
    goals.reached("MiB resident beside the filter, the most", most[0], Goal::AtMost(BESIDE));
    goals.reached("MiB resident during a rebuild beside two filters, the most", most[1], Goal::AtMost(BESIDE));
    processor()
}

/// Figures of a process with few requests, and of the program itself.
fn processor() -> io::Result<()> {
    let site = Site::new(Placement::Pinned, 1_000_000, None);
    let server = site.start();
    site.enforces();
    let requests = Requests::new(Mix::Absent, Wire::Http);
    let idle = share(&server, || std::thread::sleep(LASTS));
    let mut asked = Ok(Default::default());
    let busy = share(&server, || asked = at_rate(&site.target(&requests, CONNECTIONS), PACE, LASTS));
    let outcome = asked?;
    let (size, stripped) = program_bytes();
    println!("\nThe rest\n\n| what | |\n|---|---|");
    println!("| processor time when idle | {:.2} % of one core |", idle * 100.0);
    println!(
        "| processor time at {PACE} absent keys a second | {:.2} % of one core, {:.0} µs each |",
        busy * 100.0,
        busy * 1e6 / outcome.per_second
    );
    println!("| threads | {} |", server.threads());
    println!("| program | {:.1} MiB |", size as f64 / MIB);
    if let Some(stripped) = stripped {
        println!("| … without symbols | {:.1} MiB |", stripped as f64 / MIB);
    }
    Ok(())
}

/// The processor time that it uses meanwhile, as a share of one core.
fn share(server: &Server, meanwhile: impl FnOnce()) -> f64 {
    let (before, begin) = (server.processor_seconds(), std::time::Instant::now());
    meanwhile();
    (server.processor_seconds() - before) / begin.elapsed().as_secs_f64()
}
