//! Files of secrets: what may be at their paths, and what may be in them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::{Files, VALID, bloomguard, http_mistakes_of, lines, load_set, text};

/// The keys that name a file of secrets or certificates, and what else their settings need.
const KEYS: &[(&str, &str)] = &[
    ("redis.url_file", ""),
    ("redis.password_file", "redis.url = 'redis://app@h'"),
    ("redis.sentinel_password_file", "redis.url = 'redis+sentinel://h/main'"),
    ("redis.ca_file", "redis.url = 'rediss://h'"),
    ("redis.cert_file", "redis.url = 'rediss://h'"),
    ("redis.key_file", "redis.url = 'rediss://h'"),
    ("server.token_file", ""),
    ("server.admin_token_file", ""),
    ("keyspaces.users.source.url_file", ""),
];

/// The errors of a configuration with this file at `key`.
fn errors_of(key: &str, more: &str, file: &Path) -> Vec<String> {
    lines(&load_set(&format!("{more}\n{key} = {file:?}")).expect_err(key))
}

#[test]
fn a_secret_file_that_is_no_regular_file_is_refused_at_once() {
    let files = Files::new();
    let at = |name: &str| files.dir.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    symlink(at("pipe"), at("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    let cases = [
        (at("pipe"), "it is a pipe, not a regular file"),
        (at("link"), "it is a pipe, not a regular file"),
        (at("socket"), "it is a socket, not a regular file"),
        (at("folder"), "it is a directory, not a regular file"),
        ("/dev/zero".into(), "it is a device, not a regular file"),
    ];
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        for (file, what) in cases {
            for (key, more) in KEYS {
                let rule = format!("{key}: must be a readable file, is {file:?}: {what}");
                done.send((errors_of(key, more, &file), rule)).unwrap();
            }
        }
    });
    for _ in 0..5 * KEYS.len() {
        let (errors, rule) = is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for the file");
        assert!(errors.contains(&rule), "{rule} is not in {errors:?}");
    }
}

#[test]
fn check_config_waits_for_no_pipe() {
    let files = Files::new();
    let pipe = files.dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for key in ["redis.password_file", "server.token_file"] {
        let file = files.write("test.toml", &format!("redis.url = 'redis://h'\n{key} = {pipe:?}\n{VALID}"));
        let output = bloomguard(&["check-config", file.to_str().unwrap()], files.dir.path(), &[]);
        assert_eq!(output.status.code(), Some(78));
        let rule = format!("{key}: must be a readable file, is {pipe:?}: it is a pipe, not a regular file\n");
        assert_eq!(text(&output.stderr), rule);
    }
    let errors = http_mistakes_of(&format!("keyspaces.users.backend.headers_file = {pipe:?}"));
    assert!(errors.len() == 1 && errors[0].ends_with("it is a pipe, not a regular file"), "{errors:?}");
}

/// As Kubernetes mounts a secret, and replaces it.
#[test]
fn a_secret_behind_symbolic_links_is_read() {
    let files = Files::new();
    files.write("..2026/url", "redis://:hunter2@cache\n");
    symlink("..2026", files.dir.path().join("..data")).unwrap();
    let url = files.dir.path().join("url");
    symlink("..data/url", &url).unwrap();
    let config = load_set(&format!("redis.url_file = {url:?}")).unwrap();
    assert_eq!(config.redis.unwrap().url.expose(), "redis://:hunter2@cache");
}

#[test]
fn what_an_editor_hides_in_a_secret_file_is_refused() {
    let files = Files::new();
    for (content, rule) in [
        ("\u{feff}hunter2", "must be a file of plain UTF-8, is"),
        ("\u{feff}hunter2", ": it begins with a byte order mark"),
        ("hun\0ter2", ": it holds a NUL byte"),
        (" \r\n", "must be a file that is not empty, is"),
    ] {
        for (key, more) in KEYS {
            let errors = errors_of(key, more, &files.write("secret", content)).join("\n");
            assert!(errors.contains(&format!("{key}: must be a file")) && errors.contains(rule), "{errors}");
            assert!(!errors.contains("ter2"), "{errors}");
        }
    }
}

#[test]
fn a_password_or_url_of_two_lines_is_refused() {
    let files = Files::new();
    for content in ["hunter2\nhunter2", "hunter2\r\nhunter2\n", "hunter2\rhunter2"] {
        for (key, more) in KEYS.iter().filter(|(key, _)| key.ends_with("password_file") || key.ends_with("url_file")) {
            let errors = errors_of(key, more, &files.write("secret", content)).join("\n");
            assert!(errors.contains(&format!("{key}: must be a file of one line, is ")), "{errors}");
            assert!(errors.ends_with(": it holds a second line") && !errors.contains("hunter2"), "{errors}");
        }
    }
    // An empty line might belong to a password, and belongs to no URL.
    let two = files.write("two", "redis://h\n\n");
    assert_eq!(errors_of("redis.password_file", "redis.url = 'redis://h'", &two).len(), 1);
    assert_eq!(load_set(&format!("redis.url_file = {two:?}")).unwrap().redis.unwrap().url.expose(), "redis://h");
}

/// Tokens have a line each, with or without white space around them.
#[test]
fn lines_and_white_space_of_a_token_file_mean_nothing() {
    let files = Files::new();
    let tokens = files.write("tokens", " one \r\n\n\ttwo\n\n");
    let config = load_set(&format!("server.token_file = {tokens:?}")).unwrap();
    let held: Vec<&str> = config.server.token.iter().map(|token| token.expose()).collect();
    assert_eq!(held, ["one", "two"]);
}
