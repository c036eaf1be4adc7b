//! Splits what a Redis client sends into commands.

/// The commands of one connection, as far as they have come.
#[derive(Debug, Default)]
pub struct Commands(Vec<u8>);

impl Commands {
    /// Takes the next bytes and shows each command that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[&[u8]])) {
        self.0.extend_from_slice(bytes);
        let mut rest = &self.0[..];
        loop {
            // A replica that loads what its primary sent says so by empty lines.
            while let [b'\n', behind @ ..] = rest {
                rest = behind;
            }
            let Some((command, behind)) = command(rest) else { break };
            each(&command);
            rest = behind;
        }
        let taken = self.0.len() - rest.len();
        self.0.drain(..taken);
    }
}

/// The first command, an array of bulk strings, and what stands behind it; `None` while it is not whole.
fn command(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (count, mut rest) = length(bytes, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (size, behind) = length(rest, b'$')?;
        words.push(behind.get(..size)?);
        rest = behind.get(size + 2..)?;
    }
    Some((words, rest))
}

/// The number of a line such as `*3`, and what stands behind the line.
fn length(bytes: &[u8], sign: u8) -> Option<(usize, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(bytes[0], sign, "not a command: {:?}", String::from_utf8_lossy(&bytes[..end]));
    let number = std::str::from_utf8(&bytes[1..end]).ok()?.parse().ok()?;
    Some((number, &bytes[end + 2..]))
}

#[test]
fn commands_are_found_however_they_are_cut_into_pieces() {
    let sent = b"\n*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n*1\r\n$0\r\n\r\n";
    for size in 1..sent.len() {
        let (mut commands, mut found) = (Commands::default(), Vec::new());
        for piece in sent.chunks(size) {
            commands.feed(piece, |words| found.push(words.join(&b' ')));
        }
        assert_eq!(found, [&b"GET a\r\nb"[..], b"PING", b""], "pieces of {size}");
        assert!(commands.0.is_empty());
    }
}
