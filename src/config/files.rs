//! What other files hold: `url_file`, `token_file`, `admin_token_file`, `headers_file`, `ca_file`. Read once, when the configuration is loaded.

use std::path::Path;

use super::mistake::{Mistakes, shown_text};
use super::{Config, Headers, SecretText, SecretUrl};
use crate::client::{Trust, TrustError, header_lines};

/// Reads every file that the configuration names and puts what it holds beside its path.
pub(super) fn resolve(config: &mut Config, mistakes: &mut Mistakes) {
    if let Some(redis) = &mut config.redis {
        resolve_url(&mut redis.url, redis.url_file.as_deref(), "redis", mistakes);
    }
    for (name, keyspace) in &mut config.keyspaces {
        let backend = &mut keyspace.backend;
        resolve_url(&mut backend.url, backend.url_file.as_deref(), &format!("keyspaces.{name}.backend"), mistakes);
        backend.secret_headers = read_headers(backend.headers_file.as_deref(), &format!("keyspaces.{name}.backend"), mistakes);
        backend.ca = read_ca(backend.ca_file.as_deref(), &format!("keyspaces.{name}.backend"), mistakes);
        let keys: Vec<String> = (0..keyspace.source.iter().len()).map(|index| keyspace.source.key(index)).collect();
        for (source, key) in keyspace.source.iter_mut().zip(keys) {
            let section = format!("keyspaces.{name}.{key}");
            resolve_url(&mut source.url, source.url_file.as_deref(), &section, mistakes);
            source.secret_headers = read_headers(source.headers_file.as_deref(), &section, mistakes);
            source.ca = read_ca(source.ca_file.as_deref(), &section, mistakes);
        }
    }
    let server = &mut config.server;
    server.token = read_token(server.token_file.as_deref(), "server.token_file", mistakes);
    server.admin_token = read_token(server.admin_token_file.as_deref(), "server.admin_token_file", mistakes);
}

fn resolve_url(url: &mut SecretUrl, file: Option<&Path>, section: &str, mistakes: &mut Mistakes) {
    let Some(file) = file else { return };
    let path = format!("{section}.url_file");
    if !url.is_empty() {
        mistakes.add(path, "can't be set together with url");
        return;
    }
    match read(file) {
        Ok(text) => *url = SecretUrl::new(text),
        Err(rule) => {
            mistakes.reject(path, rule);
        }
    }
}

fn read_token(file: Option<&Path>, path: &str, mistakes: &mut Mistakes) -> Option<SecretText> {
    let text = read(file?).map_err(|rule| mistakes.reject(path, rule)).ok()?;
    // A header value could not carry it, so no client could ever send it.
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        mistakes.reject(path, "the token must be printable ASCII without spaces");
        return None;
    }
    Some(SecretText::new(text))
}

/// The mistakes of a file of secrets name its lines and show nothing of them.
fn read_headers(file: Option<&Path>, section: &str, mistakes: &mut Mistakes) -> Headers {
    let Some(file) = file else { return Headers::default() };
    let headers = read(file).and_then(|text| header_lines(&text).map_err(|error| error.to_string()));
    headers.map(Headers::new).map_err(|rule| mistakes.reject(format!("{section}.headers_file"), rule)).unwrap_or_default()
}

fn read_ca(file: Option<&Path>, section: &str, mistakes: &mut Mistakes) -> Option<Trust> {
    let file = file?;
    let named =
        |error: TrustError| format!("must be a file of PEM certificates, is {}: it {error}", shown_text(&file.display().to_string()));
    let trust = read(file).and_then(|text| Trust::from_pem(text.as_bytes()).map_err(named));
    trust.map_err(|rule| mistakes.reject(format!("{section}.ca_file"), rule)).ok()
}

/// What a file holds, without the line end that editors append.
fn read(file: &Path) -> Result<String, String> {
    let named = shown_text(&file.display().to_string());
    let text = std::fs::read_to_string(file).map_err(|error| format!("must be a readable file, is {named}: {error}"))?;
    match text.trim() {
        "" => Err(format!("must be a file that is not empty, is {named}")),
        text => Ok(text.to_owned()),
    }
}
