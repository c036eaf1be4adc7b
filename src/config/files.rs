//! Reads the files that the configuration names: `url_file`, `token_file`, `admin_token_file`, `tokens.file`,
//! `headers_file`, `ca_file` and those of `[redis]`. Read on every load.

use std::io::Read;
use std::path::Path;

use super::error::{ErrorCollector, shown_text};
use super::{Config, Headers, SecretText, SecretUrl, regular_file};
use crate::client::{Trust, TrustError, header_lines};

/// Enough for the certificates of all authorities; bounds what a wrong path costs.
const MAX_BYTES: u64 = 4 << 20;
/// Each request is compared with every token.
const MAX_TOKENS: usize = 16;

/// Reads every named file and stores its content beside its path.
pub(super) fn resolve(config: &mut Config, errors: &mut ErrorCollector) {
    if let Some(redis) = &mut config.redis {
        resolve_url(&mut redis.url, redis.url_file.as_deref(), "redis", errors);
        for wrong in redis.read_files().err().into_iter().flatten() {
            errors.reject(format!("redis.{}", wrong.key), wrong.rule);
        }
    }
    for (name, keyspace) in &mut config.keyspaces {
        let backend = &mut keyspace.backend;
        resolve_url(&mut backend.url, backend.url_file.as_deref(), &format!("keyspaces.{name}.backend"), errors);
        backend.secret_headers =
            read_headers(backend.headers_file.as_deref(), &format!("keyspaces.{name}.backend"), errors);
        backend.ca = read_ca(backend.ca_file.as_deref(), &format!("keyspaces.{name}.backend"), errors);
        let keys: Vec<String> = (0..keyspace.source.iter().len()).map(|index| keyspace.source.key(index)).collect();
        for (source, key) in keyspace.source.iter_mut().zip(keys) {
            let section = format!("keyspaces.{name}.{key}");
            resolve_url(&mut source.url, source.url_file.as_deref(), &section, errors);
            source.secret_headers = read_headers(source.headers_file.as_deref(), &section, errors);
            source.ca = read_ca(source.ca_file.as_deref(), &section, errors);
        }
    }
    let server = &mut config.server;
    server.token = read_tokens(server.token_file.as_deref(), "server.token_file", errors);
    server.admin_token = read_tokens(server.admin_token_file.as_deref(), "server.admin_token_file", errors);
    for (index, tokens) in
        server.tokens.iter_mut().enumerate().filter(|(_, tokens)| !tokens.file.as_os_str().is_empty())
    {
        tokens.tokens = read_tokens(Some(&tokens.file), &format!("server.tokens[{index}].file"), errors);
    }
}

fn resolve_url(url: &mut SecretUrl, file: Option<&Path>, section: &str, errors: &mut ErrorCollector) {
    let Some(file) = file else { return };
    let path = format!("{section}.url_file");
    if !url.is_empty() {
        errors.add(path, "can't be set together with url");
        return;
    }
    match read_url(file) {
        Ok(text) => *url = SecretUrl::new(text),
        Err(rule) => {
            errors.reject(path, rule);
        }
    }
}

/// One token per line, so that a new token can be accepted before the old one is withdrawn.
fn read_tokens(file: Option<&Path>, path: &str, errors: &mut ErrorCollector) -> Vec<SecretText> {
    let Some(file) = file else { return vec![] };
    let tokens = read(file).and_then(|text| {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // A header value could not contain such a token.
        if !lines.iter().all(|line| line.bytes().all(|b| b.is_ascii_graphic())) {
            return Err("each line must be a token of printable ASCII without spaces".to_owned());
        }
        if lines.len() > MAX_TOKENS {
            return Err(format!("must hold at most {MAX_TOKENS} tokens, holds {}", lines.len()));
        }
        Ok(lines.into_iter().map(|line| SecretText::new(line.to_owned())).collect())
    });
    tokens.map_err(|rule| errors.reject(path, rule)).unwrap_or_default()
}

/// Errors of a secret file name its lines and show nothing of them.
fn read_headers(file: Option<&Path>, section: &str, errors: &mut ErrorCollector) -> Headers {
    let Some(file) = file else { return Headers::default() };
    let headers = read(file).and_then(|text| header_lines(&text).map_err(|error| error.to_string()));
    headers.map(Headers::new).map_err(|rule| errors.reject(format!("{section}.headers_file"), rule)).unwrap_or_default()
}

fn read_ca(file: Option<&Path>, section: &str, errors: &mut ErrorCollector) -> Option<Trust> {
    let file = file?;
    let rule = |error: TrustError| format!("must be a file of PEM certificates, is {}: it {error}", named(file));
    let trust = read(file).and_then(|text| Trust::from_pem(text.as_bytes()).map_err(rule));
    trust.map_err(|rule| errors.reject(format!("{section}.ca_file"), rule)).ok()
}

/// Text of several lines, without white space around it.
pub(super) fn read(file: &Path) -> Result<String, String> {
    Ok(read_text(file)?.trim().to_owned())
}

/// A URL: one line. No URL begins or ends with white space.
fn read_url(file: &Path) -> Result<String, String> {
    one_line(file, read(file)?)
}

/// A password: one line, without its line end. All other white space belongs to the password.
pub(super) fn read_password(file: &Path) -> Result<String, String> {
    let mut text = read_text(file)?;
    let line = text.strip_suffix("\r\n").or_else(|| text.strip_suffix(['\n', '\r'])).unwrap_or(&text).len();
    text.truncate(line);
    one_line(file, text)
}

fn one_line(file: &Path, text: String) -> Result<String, String> {
    if text.contains(['\n', '\r']) {
        return Err(format!("must be a file of one line, is {}: it holds a second line", named(file)));
    }
    Ok(text)
}

/// The content of a file that is neither too long nor blank, and has nothing in it that editors hide.
fn read_text(file: &Path) -> Result<String, String> {
    let named = named(file);
    let mut text = String::new();
    let reading = regular_file::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let bytes = reading.map_err(|error| format!("must be a readable file, is {named}: {error}"))?;
    if bytes as u64 > MAX_BYTES {
        return Err(format!("must be a file of at most {MAX_BYTES} bytes, is {named}"));
    }
    if text.starts_with('\u{feff}') {
        return Err(format!("must be a file of plain UTF-8, is {named}: it begins with a byte order mark"));
    }
    if text.contains('\0') {
        return Err(format!("must be a file of plain UTF-8, is {named}: it holds a NUL byte"));
    }
    if text.trim().is_empty() {
        return Err(format!("must be a file that is not empty, is {named}"));
    }
    Ok(text)
}

fn named(file: &Path) -> String {
    shown_text(&file.display().to_string())
}
