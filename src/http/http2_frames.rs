//! Meters HTTP/2 frames that carry no request.
//!
//! h2 bounds rapid resets, CONTINUATION and small DATA frames by itself, but it answers PING, SETTINGS, WINDOW_UPDATE
//! and PRIORITY without limit. So each such frame spends one credit. Time, requests and response bytes refill the
//! credit.

use tokio::time::Instant;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

/// RFC 9113, section 6.
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
}
const END_STREAM: u8 = 1;

/// Frames allowed at the start of a connection. Few, so that reconnecting gains nothing.
const INITIAL_CREDIT: f64 = 100.0;
/// Largest credit in frames: as many as a client sends that cancels all its streams at once.
const MAX_CREDIT: f64 = 1000.0;
/// Frames per second on an otherwise idle connection. gRPC clients ping once in ten seconds.
const CREDIT_PER_SECOND: f64 = 50.0;
/// Frames per request: window updates of stream and connection, a ping that measures the round trip, a reset.
const CREDIT_PER_REQUEST: f64 = 8.0;
/// Frames per response byte: a 16 KiB frame may be followed by two window updates and a ping.
const CREDIT_PER_BYTE_SENT: f64 = 1.0 / 1024.0;

/// The client exceeded its credit of control frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ControlFlood;

/// Parses the frames of one connection as its bytes pass.
#[derive(Debug)]
pub(super) struct ControlFrameMeter {
    state: FrameState,
    credit: f64,
    filled: Option<Instant>,
    highest_stream: u32,
}

/// What the next byte belongs to.
#[derive(Debug)]
enum FrameState {
    /// The connection preface, of which this many bytes have matched.
    Preface(usize),
    Head([u8; HEADER_BYTES], usize),
    Payload(usize),
    /// The connection speaks HTTP/1.
    Http1,
}

impl Default for ControlFrameMeter {
    fn default() -> Self {
        Self { state: FrameState::Preface(0), credit: INITIAL_CREDIT, filled: None, highest_stream: 0 }
    }
}

impl ControlFrameMeter {
    /// Meters bytes that were read at `now`.
    pub(super) fn read(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), ControlFlood> {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                FrameState::Http1 => return Ok(()),
                FrameState::Preface(matched) => {
                    let taken = bytes.len().min(PREFACE.len() - *matched);
                    if bytes[..taken] != PREFACE[*matched..*matched + taken] {
                        self.state = FrameState::Http1;
                        return Ok(());
                    }
                    *matched += taken;
                    if *matched == PREFACE.len() {
                        self.state = FrameState::Head([0; HEADER_BYTES], 0);
                    }
                    taken
                }
                FrameState::Head(head, filled) => {
                    let taken = bytes.len().min(HEADER_BYTES - *filled);
                    head[*filled..*filled + taken].copy_from_slice(&bytes[..taken]);
                    *filled += taken;
                    if *filled == HEADER_BYTES {
                        let head = *head;
                        self.frame(head, now)?;
                    }
                    taken
                }
                FrameState::Payload(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    if *left == 0 {
                        self.state = FrameState::Head([0; HEADER_BYTES], 0);
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Refills the credit for bytes sent to the client.
    pub(super) fn record_sent(&mut self, bytes: usize) {
        if !matches!(self.state, FrameState::Http1) {
            self.refill(bytes as f64 * CREDIT_PER_BYTE_SENT);
        }
    }

    fn frame(&mut self, head: [u8; HEADER_BYTES], now: Instant) -> Result<(), ControlFlood> {
        let [a, b, c, kind, flags, s, t, u, v] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([s, t, u, v]) & (u32::MAX >> 1);
        self.state = if length == 0 { FrameState::Head([0; HEADER_BYTES], 0) } else { FrameState::Payload(length) };
        match kind {
            kind::HEADERS if stream > self.highest_stream => {
                self.highest_stream = stream;
                self.refill(CREDIT_PER_REQUEST);
                Ok(())
            }
            kind::DATA if length > 0 || flags & END_STREAM != 0 => Ok(()),
            _ => self.spend(now),
        }
    }

    fn refill(&mut self, frames: f64) {
        self.credit = MAX_CREDIT.min(self.credit + frames);
    }

    fn spend(&mut self, now: Instant) -> Result<(), ControlFlood> {
        let since = self.filled.replace(now).map_or(0.0, |before| now.saturating_duration_since(before).as_secs_f64());
        self.refill(since * CREDIT_PER_SECOND);
        self.credit -= 1.0;
        if self.credit < 0.0 { Err(ControlFlood) } else { Ok(()) }
    }

    /// A GOAWAY frame with ENHANCE_YOUR_CALM. The client may retry unanswered requests elsewhere.
    pub(super) fn goaway(&self) -> [u8; HEADER_BYTES + 8] {
        let mut frame = [0; HEADER_BYTES + 8];
        frame[..HEADER_BYTES].copy_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0]);
        frame[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&self.highest_stream.to_be_bytes());
        frame[HEADER_BYTES + 7] = 11;
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn begun() -> (ControlFrameMeter, Instant) {
        let (mut frames, now) = (ControlFrameMeter::default(), Instant::now());
        frames.read(PREFACE, now).unwrap();
        (frames, now)
    }

    /// How many such frames a connection may send at once, read in pieces of `piece` bytes.
    fn admitted(one: &[u8], piece: usize) -> usize {
        let (mut frames, now) = begun();
        let many = one.repeat(3000);
        let mut read = 0;
        for bytes in many.chunks(piece) {
            if frames.read(bytes, now).is_err() {
                break;
            }
            read += bytes.len();
        }
        read / one.len()
    }

    #[test]
    fn frames_that_ask_for_nothing_are_bounded_however_they_arrive() {
        // PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION, an unknown type, and empty DATA.
        for (kind, payload) in [(2, 5), (3, 4), (4, 0), (4, 6), (6, 8), (8, 4), (9, 0), (200, 3), (0, 0)] {
            let one = frame(kind, 0, 1, &vec![b'x'; payload]);
            for piece in [1, 7, one.len()] {
                let admitted = admitted(&one, piece);
                assert!((99..=101).contains(&admitted), "{kind}: {admitted} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn requests_and_bodies_are_bounded_by_others() {
        assert_eq!(admitted(&frame(0, 0, 1, b"x"), 100), 3000);
        assert_eq!(admitted(&frame(0, END_STREAM, 1, b""), 100), 3000);
        let (mut frames, now) = begun();
        for stream in (1..100_000).step_by(2) {
            let more = [
                frame(8, 0, 0, &[0; 4]),
                frame(8, 0, stream, &[0; 4]),
                frame(6, 0, 0, &[0; 8]),
                frame(3, 0, stream, &[0; 4]),
            ];
            frames.read(&[frame(1, 5, stream, b"head"), more.concat()].concat(), now).unwrap();
        }
    }

    #[test]
    fn who_gives_up_all_streams_at_once_is_not_cut() {
        let (mut frames, now) = begun();
        for round in 0..10 {
            let streams = (0..200).map(|stream| 2 * (200 * round + stream) + 1);
            let (begin, end): (Vec<_>, Vec<_>) =
                streams.map(|stream| (frame(1, 5, stream, b"head"), frame(3, 0, stream, &[0; 4]))).unzip();
            frames.read(&[begin.concat(), end.concat()].concat(), now).unwrap();
        }
    }

    #[test]
    fn a_stream_that_is_known_is_no_new_request() {
        let (mut frames, now) = begun();
        let again = frame(1, 5, 1, b"head").repeat(3000);
        assert_eq!(frames.read(&again, now), Err(ControlFlood));
    }

    #[test]
    fn as_many_pings_and_window_updates_as_clients_send_are_admitted() {
        let (mut frames, mut now) = begun();
        for _ in 0..100_000 {
            now += Duration::from_millis(25);
            frames.read(&frame(6, 0, 0, &[0; 8]), now).unwrap();
        }
        for _ in 0..100_000 {
            frames.record_sent(16 << 10);
            frames.read(&[frame(8, 0, 0, &[0; 4]), frame(8, 0, 1, &[0; 4])].concat(), now).unwrap();
        }
    }

    #[test]
    fn http1_is_not_metered() {
        for first in [&b"GET / HTTP/1.1\r\n"[..], b"P", b"PRI * HTTP/2.0\r\n\r\nXX", b"\x16\x03\x01"] {
            let (mut frames, now) = (ControlFrameMeter::default(), Instant::now());
            frames.read(first, now).unwrap();
            for _ in 0..3000 {
                frames.read(&frame(6, 0, 0, &[0; 8]), now).unwrap();
            }
            assert!(matches!(frames.state, FrameState::Http1), "{first:?}");
        }
    }

    #[test]
    fn the_farewell_names_the_last_request_that_was_read() {
        let (mut frames, now) = begun();
        frames.read(&frame(1, 5, 7, b"head"), now).unwrap();
        assert_eq!(frames.goaway(), frame(7, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 11])[..]);
    }
}
