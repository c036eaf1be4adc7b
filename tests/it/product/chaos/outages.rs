//! When instances did not reject, for how long, and why.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An instance did not reject for a while.
#[derive(Debug)]
pub struct Outage {
    /// What had been broken last when it began.
    pub fault: &'static str,
    /// What `/status` said first.
    pub reason: String,
    pub lasted: Duration,
}

/// Watches one instance.
#[derive(Default)]
pub struct Watch {
    since: Option<(&'static str, String, Instant)>,
}

impl Watch {
    /// The instance rejects (`None`), or does not because of that. Returns the outage that this ends.
    pub fn note(&mut self, fault: &'static str, trouble: Option<String>) -> Option<Outage> {
        let Some(reason) = trouble else {
            let (fault, reason, since) = self.since.take()?;
            return Some(Outage { fault, reason, lasted: since.elapsed() });
        };
        self.since.get_or_insert_with(|| (fault, reason, Instant::now()));
        None
    }
}

/// A table of outages by fault, and one by reason.
pub fn report(outages: &[Outage]) -> String {
    let by_fault = table(outages, |outage| outage.fault.to_owned());
    // The words before the first figure, so that equal reasons are counted together.
    let by_reason = table(outages, |outage| {
        let words = outage.reason.split([':', ';', ',']).next().unwrap_or_default();
        words.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim().to_owned()
    });
    format!("{by_fault}{by_reason}")
}

fn table(outages: &[Outage], by: impl Fn(&Outage) -> String) -> String {
    let mut groups: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for outage in outages {
        groups.entry(by(outage)).or_default().push(outage.lasted);
    }
    let line = |(cause, lasted): (&String, &Vec<Duration>)| {
        let (sum, longest) = (lasted.iter().sum::<Duration>(), lasted.iter().max().copied().unwrap_or_default());
        let mean = sum / u32::try_from(lasted.len()).unwrap_or(u32::MAX);
        format!(
            "  {:>5} times, mean {:>5.1} s, longest {:>5.1} s: {cause}\n",
            lasted.len(),
            mean.as_secs_f64(),
            longest.as_secs_f64()
        )
    };
    format!("not rejecting, {} times:\n{}", outages.len(), groups.iter().map(line).collect::<String>())
}
