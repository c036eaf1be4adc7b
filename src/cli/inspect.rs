//! `bloomguard snapshot inspect FILE`.

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};

use crate::filter::snapshot::{Header, ReadError, VERSION, WatermarkText, open};
use crate::key::KeySecret;

/// Exit status of a file that is not a snapshot or is damaged: `EX_DATAERR` of sysexits.h.
const EX_DATAERR: u8 = 65;
/// Exit status of an unreadable file: `EX_NOINPUT`.
const EX_NOINPUT: u8 = 66;

/// Prints the snapshot's header to standard output and its errors to standard error. Returns the exit status.
#[must_use]
pub fn inspect(file: &Path) -> ExitCode {
    let shown = open(file).and_then(|opened| {
        // Printed before the words are read: the header is valid and says what the file should contain.
        let text = describe(&opened.header);
        let _ = write!(std::io::stdout(), "{text}");
        opened.load().map(|_| ())
    });
    match shown {
        Ok(()) => {
            let _ = writeln!(std::io::stdout(), "checksums     of the header and of every layer are right");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}: {error}", file.display());
            ExitCode::from(if matches!(error, ReadError::Io(_)) { EX_NOINPUT } else { EX_DATAERR })
        }
    }
}

/// One fact per line. Writing to a `String` can't fail.
fn describe(header: &Header) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn Display| _ = writeln!(text, "{name:<13} {value}");
    let Header { log, polls, journal, taken, .. } = header;
    line("format", &VERSION);
    line("written by", &header.written_by);
    line("keyspace", &header.keyspace);
    line("filter", &format_args!("{}, made for {} keys at {}", header.kind, header.capacity, header.rate));
    line("generation", &header.generation);
    line("keys", &format_args!("{} by its fill, {:?} scanned", header.items, header.counted));
    line("key form", &header.key_form);
    line("hash", &format_args!("{}, secret {:016x}", header.hash, KeySecret::new(header.secret.0).fingerprint()));
    line("basis", &header.basis);
    line("taken", &TakenDisplay(taken.unix_nanos));
    line("boot", &format_args!("{:?}, {} after it", taken.boot_id, Ago(taken.boot_nanos)));
    line("scan began", &format_args!("{} before that", Ago(header.scan_age)));
    match log {
        Some(log) => line(
            "delta log",
            &format_args!("{}-{} of {}, {} entries made", log.millis, log.sequence, log.identity, log.made),
        ),
        None => line("delta log", &"none"),
    }
    for poll in polls.iter().flatten() {
        let from = WatermarkDisplay(&poll.watermark);
        line(
            "polls",
            &format_args!(
                "from {from}; the last one began {} before, transactions open for {}",
                Ago(poll.age),
                Ago(poll.open_for)
            ),
        );
    }
    line("proven", if header.proven { &"yes" } else { &"no" });
    line("journal", &format_args!("record {} of {}", journal.next, journal.id));
    for (number, layer) in header.layers.iter().enumerate() {
        let size = format_args!("{} bits, {} a key, {} bytes", layer.bits, layer.hashes, layer.words * 8);
        line(
            "layer",
            &format_args!(
                "{number}: {}, for {} keys at {}; {size}; XXH3-128 {}",
                layer.kind, layer.capacity, layer.rate, layer.checksum
            ),
        );
    }
    text
}

struct Ago(u64);

impl Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(Duration::from_millis(self.0 / 1_000_000)).fmt(f)
    }
}

struct TakenDisplay(u64);

impl Display for TakenDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).map(DateTime::from_timestamp_nanos) {
            Ok(moment) => f.write_str(&moment.to_rfc3339_opts(SecondsFormat::Millis, true)),
            // Only a forged header has such a value.
            Err(_) => write!(f, "{} ns", self.0),
        }
    }
}

struct WatermarkDisplay<'a>(&'a WatermarkText);

impl Display for WatermarkDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            WatermarkText::Integer(digits) => f.write_str(digits),
            WatermarkText::Timestamp(micros) => match DateTime::from_timestamp_micros(*micros) {
                Some(moment) => f.write_str(&moment.to_rfc3339_opts(SecondsFormat::Micros, true)),
                None => write!(f, "{micros} µs"),
            },
            WatermarkText::Text(text) => write!(f, "{text:?}"),
        }
    }
}
