//! The configuration as users meet it: `check-config`, files, environment, secrets.

mod secret_files;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bloomguard::config::{self, Config, ConfigErrors};
use serde::Deserialize;
use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/bloomguard.example.toml");

/// A valid keyspace; `KS` sections can be appended.
const VALID: &str = r#"
[keyspaces.users]
freshness = "announced"
[keyspaces.users.backend]
url = "postgres://app:hunter2@db/app"
query = "SELECT name FROM users WHERE id = $1"
[keyspaces.users.source]
query = "SELECT id FROM users"
"#;

struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let files = Files::new();
    let path = files.write("test.toml", text);
    config::load(&[path], variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn load(text: &str) -> Result<Config, ConfigErrors> {
    load_with(text, &[])
}

/// The valid configuration with one more override, written as `path = value`.
fn load_set(setting: &str) -> Result<Config, ConfigErrors> {
    let files = Files::new();
    let (base, change) = (files.write("base.toml", VALID), files.write("change.toml", setting));
    config::load(&[base, change], std::iter::empty())
}

/// The errors of the valid configuration with one override.
fn mistakes_of(setting: &str) -> Vec<String> {
    lines(&load_set(setting).expect_err(setting))
}

fn lines(errors: &ConfigErrors) -> Vec<String> {
    errors.errors().iter().map(ToString::to_string).collect()
}

fn bloomguard(arguments: &[&str], dir: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloomguard"));
    command.args(arguments).current_dir(dir).env_clear().envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn example_file_is_valid() {
    let output = bloomguard(&["check-config", EXAMPLE], Path::new("/"), &[]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "the configuration is valid: 1 keyspace (users)\n");
}

fn only_source(keyspace: &config::KeyspaceConfig) -> &config::SourceConfig {
    assert!(!keyspace.source.is_list());
    keyspace.source.iter().next().unwrap()
}

/// The keys of a section, as its type tells them when it meets one that it does not know.
fn keys_of<T: for<'de> Deserialize<'de>>() -> Vec<String> {
    let Err(error) = toml::from_str::<T>("\"no such key\" = 0") else { panic!("an unknown key was accepted") };
    let keys: Vec<String> = error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect();
    assert!(!keys.is_empty(), "{error}");
    keys
}

#[test]
fn example_file_names_every_key() {
    let example = std::fs::read_to_string(EXAMPLE).unwrap();
    let sections = [
        ("[server]", keys_of::<config::ServerConfig>()),
        ("[log]", keys_of::<config::LogConfig>()),
        ("[redis]", keys_of::<config::RedisConfig>()),
        ("[redis.log]", keys_of::<config::RedisLogConfig>()),
        ("[keyspaces.users]", keys_of::<config::KeyspaceConfig>()),
        ("[keyspaces.users.filter]", keys_of::<config::FilterConfig>()),
        ("[keyspaces.users.cache]", keys_of::<config::CacheConfig>()),
        ("[keyspaces.users.backend]", keys_of::<config::BackendConfig>()),
        ("[keyspaces.users.source]", keys_of::<config::SourceConfig>()),
        ("[keyspaces.users.rebuild]", keys_of::<config::RebuildConfig>()),
        ("[keyspaces.users.canary]", keys_of::<config::CanaryConfig>()),
    ];
    for (header, keys) in sections {
        let start = example.find(&format!("{header}\n")).unwrap_or_else(|| panic!("{header} is missing"));
        let body = &example[start + header.len()..];
        let body = &body[..body.find("\n[").unwrap_or(body.len())];
        for key in keys {
            let set = body.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
            let section = example.contains(&format!("[{}.{key}]", header.trim_matches(['[', ']'])));
            assert!(set || section, "{header} lacks {key}");
        }
    }
}

#[test]
fn example_file_shows_the_defaults() {
    let shown = config::load(&[EXAMPLE.into()], std::iter::empty()).unwrap();
    let users = &shown.keyspaces["users"];
    assert_eq!(format!("{:?}", shown.server), format!("{:?}", config::ServerConfig::default()));
    assert_eq!(format!("{:?}", shown.log), format!("{:?}", config::LogConfig::default()));
    let given = config::FilterConfig { expected_keys: users.filter.expected_keys, ..Default::default() };
    assert_eq!(format!("{:?}", users.filter), format!("{given:?}"));
    assert_eq!(format!("{:?}", users.cache), format!("{:?}", config::CacheConfig::default()));
    assert_eq!(users.canary, config::CanaryConfig::default());
    assert_eq!(users.enforcement_setting(), config::Enforcement::Enforce.into());

    let given = config::RedisConfig { url: shown.redis.as_ref().unwrap().url.clone(), ..Default::default() };
    assert_eq!(format!("{:?}", shown.redis.as_ref().unwrap()), format!("{given:?}"));
    let given = config::BackendConfig {
        url: users.backend.url.clone(),
        query: users.backend.query.clone(),
        ..Default::default()
    };
    assert_eq!(format!("{:?}", users.backend), format!("{given:?}"));
    let source = only_source(users);
    let given =
        config::SourceConfig { url: users.backend.url.clone(), query: source.query.clone(), ..Default::default() };
    assert_eq!(format!("{source:?}"), format!("{given:?}"));
    let given = config::RebuildConfig { schedule: users.rebuild.schedule.clone(), ..Default::default() };
    assert_eq!(format!("{:?}", users.rebuild), format!("{given:?}"));
}

#[test]
fn every_mistake_is_reported_at_once() {
    let files = Files::new();
    let path = files.write(
        "bad.toml",
        r#"
[server]
workrs = 3
drain_timeout = 25
listen = "0.0.0.0:4040"
max_batch_keys = 0
max_batch_bytes = 0
max_announces_per_second = 0
max_announce_bytes = "1KiB"
max_buffered_bytes = "1MiB"
send_timeout = "0s"
[log]
format = "yaml"
[redis]
url = "rediss://:hunter2@cache#insecure"
[keyspaces.Users]
enforcement = "off"
max_staleness = "0s"
[keyspaces.Users.filter]
false_positive_rate = 1.5
[keyspaces.Users.backend]
url = "https://app:hunter2@api/users"
max_queue = -1
query = "SELECT 1"
"#,
    );
    let output = bloomguard(&["check-config", path.to_str().unwrap()], files.dir.path(), &[]);
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(text(&output.stdout), "");
    let stderr = text(&output.stderr);
    let expected = [
        "keyspaces.Users: the name of a keyspace must match [a-z][a-z0-9_-]{0,62}",
        "keyspaces.Users.backend.max_queue: must be a whole number, 0 or more, is -1",
        "keyspaces.Users.backend.url: is of scheme https, which needs kind = \"http\", \
            is \"https://app:redacted@api/users\"",
        "keyspaces.Users.enforcement: must be one of \"enforce\", \"shadow\", is \"off\"",
        "keyspaces.Users.filter.false_positive_rate: must be greater than 0 and less than 1, is 1.5",
        "keyspaces.Users.max_staleness: must be at least 1ms, is 0s",
        "keyspaces.Users.source.query: is required",
        "log.format: must be one of \"auto\", \"text\", \"json\", is \"yaml\"",
        "redis.url: must be a URL that can be connected to: it ends in a fragment; certificates are always checked, \
            and ca_file names other authorities, is \"rediss://:redacted@cache#redacted\"",
        "server.drain_timeout: must be a duration such as \"250ms\", \"10s\" or \"1h 30m\", is 25",
        "server.listen: off loopback it needs token_file, tokens, or allow_unauthenticated = true, is \"0.0.0.0:4040\"",
        "server.max_announce_bytes: must be from 1MiB to 4GiB, is 1024",
        "server.max_announces_per_second: must be from 1 to 10000000, is 0",
        "server.max_batch_bytes: must be at least 1, is 0",
        "server.max_batch_keys: must be from 1 to 1000000, is 0",
        "server.max_buffered_bytes: must be 0, or at least 67108864 for a body of max_body_bytes and a batch of \
            max_batch_keys, is 1048576",
        "server.send_timeout: must be at least 1ms, is 0s",
        "server.workrs: unknown key; did you mean workers?",
    ];
    assert_eq!(stderr.lines().collect::<Vec<_>>(), expected);
    assert!(!stderr.contains("hunter2"));
}

#[test]
fn settings_of_redis_that_do_not_fit_its_url_are_refused() {
    let files = Files::new();
    let (file, empty) = (files.write("password", "hunter2"), files.write("empty", "\n"));
    let (file, empty) = (file.to_str().unwrap(), empty.to_str().unwrap());
    for (url, settings, expected) in [
        ("redis://h", format!("ca_file = '{file}'"), "redis.ca_file: must be a file of PEM certificates, is "),
        (
            "rediss://h",
            format!("cert_file = '{file}'"),
            "redis.key_file: is required: a certificate and its key belong",
        ),
        (
            "rediss://h",
            format!("key_file = '{file}'"),
            "redis.cert_file: is required: a certificate and its key belong",
        ),
        ("rediss://h", "server_name = 'not a name'".into(), "redis.server_name: must be a DNS name or an IP address"),
        (
            "redis://h",
            "server_name = 'h'".into(),
            "redis.server_name: is for TLS, and redis.url is not a rediss:// URL",
        ),
        ("redis://h", "password_file = '/none'".into(), "redis.password_file: must be a readable file, is \"/none\""),
        ("redis://h", format!("password_file = '{empty}'"), "redis.password_file: must be a file that is not empty"),
        ("redis://:x@h", format!("password_file = '{file}'"), "redis.password_file: can't be set together with"),
        (
            "redis://h",
            format!("sentinel_password_file = '{file}'"),
            "redis.sentinel_password_file: is for redis+sentinel",
        ),
        (
            "redis+sentinel://h/m?sentinel_password=x",
            format!("sentinel_password_file = '{file}'"),
            "redis.sentinel_password_file: can't be set together with sentinel_password",
        ),
    ] {
        let errors = mistakes_of(&format!("redis.url = \"{url}\"\nredis.{settings}")).join("\n");
        assert!(errors.contains(expected) && !errors.contains("hunter2"), "{url} {settings}: {errors}");
    }
    let authority = crate::support::certificates::Authority::new();
    let (ours, other) = (authority.issue("DNS:a"), authority.issue("DNS:b"));
    let pair = |key: &std::path::Path| {
        format!("redis.url = 'rediss://h'\nredis.cert_file = {:?}\nredis.key_file = {key:?}", ours.chain)
    };
    load_set(&pair(&ours.key)).unwrap();
    let errors = mistakes_of(&pair(&other.key)).join("\n");
    assert!(errors.contains("redis.key_file: must be a file of the private key of cert_file"), "{errors}");
    assert!(errors.contains("it holds the key of another certificate"), "{errors}");
}

#[test]
fn sentinels_and_clusters_are_named_by_several_hosts() {
    for url in
        ["redis+sentinel://one,two:26380/main/2", "redis+cluster://app:secret@one:7000,two", "rediss+cluster://one"]
    {
        load_set(&format!("redis.url = \"{url}\"")).unwrap();
    }
    let rule_of = |setting: &str| mistakes_of(setting).join("\n");
    let rule = rule_of("redis.url = \"redis+sentinel://app:secret@one,two\"");
    assert!(
        rule.contains("lacks the name of the primary") && rule.contains("redis+sentinel://app:redacted@one,two"),
        "{rule}"
    );
    let rule = rule_of("redis.url = \"redis+cluster://one\"\nredis.key_prefix = \"a}\"");
    assert!(rule.contains("have no braces"), "{rule}");
    let scan = |url: &str, more: &str| {
        rule_of(&format!(
            "redis.url = \"{url}\"\nkeyspaces.users.key = \"text\"\n\
             keyspaces.users.source = {{ kind = \"redis\", query = \"\", set = \"users\"{more} }}"
        ))
    };
    let rule = scan("redis+cluster://one", "");
    assert!(rule.contains("source.url: is required where redis.url names more than one server"), "{rule}");
    let rule = scan("redis://one", ", url = \"redis+sentinel://one/main\"");
    assert!(rule.contains("source.url: must name one server"), "{rule}");
}

#[test]
fn nonsense_is_no_feature_to_come() {
    for (setting, rule) in [
        (
            "keyspaces.users.freshness = \"fresh\"",
            "must be one of \"announced\", \"polled\", \"rebuilt\", \"static\", is \"fresh\"",
        ),
        (
            "keyspaces.users.filter.kind = \"cuckoo\"",
            "must be one of \"bloom\", \"classic\", \"scalable\", is \"cuckoo\"",
        ),
        (
            "keyspaces.users.backend.url = \"oracle://db\"",
            "must be a postgres://, mysql:// or sqlite: URL, is \"oracle://db\"",
        ),
        ("keyspaces.users.filter.kind = \"windowed\"", "forgets keys by design"),
        ("keyspaces.users.filter.kind = \"counting\"", "neither filter nor backend can prove that it was in"),
        (
            "redis.url = \"memcached://cache\"",
            "must be a redis://, rediss://, redis+sentinel://, redis+cluster:// or unix:// URL, is \"memcached://cache\"",
        ),
        ("keyspaces.users.colour = 1", "unknown key"),
        ("redis = [\"redis://cache\"]", "redis: must be a table, is an array"),
        ("keyspaces.users.cache = []", "keyspaces.users.cache: must be a table, is an array"),
        ("log.format = 5", "log.format: must be a string, is 5"),
        ("keyspace.users.key = \"text\"", "unknown key; did you mean keyspaces?"),
    ] {
        let errors = mistakes_of(setting);
        assert_eq!(errors.len(), 1, "{setting}: {errors:?}");
        assert!(errors[0].contains(rule) && !errors[0].contains("yet"), "{errors:?}");
    }
}

/// A valid keyspace before an API.
const HTTP: &str = r#"
[keyspaces.users]
key = "integer"
freshness = "announced"
[keyspaces.users.filter]
expected_keys = 1000
[keyspaces.users.backend]
kind = "http"
url = "https://app:hunter2@api/users/{key}"
[keyspaces.users.source]
kind = "http"
url = "https://api/keys"
"#;

/// The errors of the keyspace before an API with one override.
fn http_mistakes_of(setting: &str) -> Vec<String> {
    let files = Files::new();
    let (base, change) = (files.write("base.toml", HTTP), files.write("change.toml", setting));
    config::load(&[base, change], std::iter::empty()).map_or_else(|errors| lines(&errors), |_| vec![])
}

#[test]
fn an_api_can_be_backend_and_source() {
    assert_eq!(http_mistakes_of(""), [""; 0]);
    for setting in [
        "keyspaces.users.backend.url = \"http://api?id={key}\"",
        "keyspaces.users.backend.absent_status = [404, 410, 204, 403]",
        "keyspaces.users.backend.absent_header = \"X-Row: absent\"",
        "keyspaces.users.backend.headers = { Accept = \"application/json\", Host = \"users\" }",
        "keyspaces.users.source = { format = \"ndjson\", headers = { Authorization = \"Bearer hunter2\" } }",
        "keyspaces.users.source = { kind = \"sql\", url = \"postgres://db/app\", query = \"SELECT id FROM users\" }",
    ] {
        assert_eq!(http_mistakes_of(setting), [""; 0], "{setting}");
    }
}

#[test]
fn what_an_api_can_not_do_is_refused() {
    for (setting, error) in [
        ("backend.url = \"http://{key}/users\"", "backend.url: must not hold {key} before its path, is"),
        ("backend.url = \"http://api/users\"", "backend.url: must hold {key} exactly once, in its path or query, is"),
        (
            "backend.url = \"http://api/{key}/{key}\"",
            "backend.url: must hold {key} exactly once, in its path or query, is",
        ),
        ("backend.url = \"http://app:hunter2@api/../{key}\"", "backend.url: must hold no segment . or .., is"),
        ("backend.url = \"postgres://app:hunter2@db/app\"", "backend.url: must be an http:// or https:// URL, is"),
        ("source.url = \"http://api/keys/{key}\"", "source.url: must hold no {key}, is"),
        ("source.url = \"\"", "source.url: is required"),
        ("backend.absent_status = []", "backend.absent_status: must name at least one status"),
        ("backend.absent_status = [200]", "backend.absent_status: must be 204 or a 4xx that is not a failure"),
        ("backend.absent_status = [404, 500]", "backend.absent_status: must be 204 or a 4xx"),
        ("backend.absent_status = [429]", "backend.absent_status: must be 204 or a 4xx"),
        ("backend.absent_status = [302]", "backend.absent_status: must be 204 or a 4xx"),
        ("backend.absent_status = 404", "backend.absent_status: must be a sequence"),
        (
            "backend.absent_header = \"X-Row:\"",
            "backend.absent_header: must be the name of a header, or \"Name: value\", is",
        ),
        ("backend.headers = { \"Bad Name\" = \"hunter2\" }", "backend.headers: \"Bad Name\" is not a header name"),
        ("backend.headers = { X = \"hunter2\\n\" }", "backend.headers: the value of x must be printable ASCII"),
        ("backend.headers = { Content-Length = \"1\" }", "backend.headers: content-length can't be set"),
        ("backend.headers = \"Authorization: hunter2\"", "backend.headers: must be a table"),
        (
            "backend.headers = { Authorization = 42 }",
            "backend.headers.Authorization: must be a string, is \"redacted\"",
        ),
        ("backend.query = \"SELECT 1\"", "backend.query: is not used by a backend of kind \"http\""),
        ("backend.statement_cache = 7", "backend.statement_cache: is not used by a backend of kind \"http\""),
        ("backend.min_connections = 2", "backend.min_connections: is not used by a backend of kind \"http\""),
        ("source.query = \"SELECT id FROM users\"", "source.query: is not used by a source of kind \"http\""),
        ("source.format = \"csv\"", "source.format: must be one of \"lines\", \"ndjson\", is \"csv\""),
        (
            "source.kind = \"sql\"\nkeyspaces.users.source.query = \"SELECT id FROM users\"",
            "source.url: is of scheme https",
        ),
    ] {
        let errors = http_mistakes_of(&format!("keyspaces.users.{setting}"));
        assert!(
            errors.len() == 1 && errors[0].starts_with(&format!("keyspaces.users.{error}")),
            "{setting}: {errors:?}"
        );
        assert!(!errors[0].contains("hunter2"), "{errors:?}");
    }
    for (setting, error) in [
        ("backend.headers = { A = \"b\" }", "backend.headers: is not used by a backend of kind \"sql\""),
        ("backend.absent_status = [410]", "backend.absent_status: is not used by a backend of kind \"sql\""),
        ("backend.absent_header = \"A\"", "backend.absent_header: is not used by a backend of kind \"sql\""),
        ("backend.url = \"https://api/{key}\"", "backend.url: is of scheme https, which needs kind = \"http\""),
        ("source.format = \"lines\"", "source.format: is not used by a source of kind \"sql\""),
    ] {
        let errors = mistakes_of(&format!("keyspaces.users.{setting}"));
        assert!(
            errors.len() == 1 && errors[0].starts_with(&format!("keyspaces.users.{error}")),
            "{setting}: {errors:?}"
        );
    }
}

#[test]
fn a_list_of_keys_needs_to_be_told_of_them() {
    let errors =
        lines(&load(&HTTP.replace("key = \"integer\"\n", "").replace("expected_keys = 1000", "")).unwrap_err());
    assert!(errors[0].starts_with("keyspaces.users.filter.expected_keys: is required, because source"), "{errors:?}");
    assert!(errors[1].starts_with("keyspaces.users.key: is required, because a source of kind \"http\""), "{errors:?}");
    assert_eq!(errors.len(), 2, "{errors:?}");
    let unsaid = HTTP.replace("kind = \"http\"\nurl = \"https://api/keys\"", "query = \"SELECT id FROM users\"");
    let errors = lines(&load(&unsaid).unwrap_err());
    assert_eq!(
        errors,
        ["keyspaces.users.source.url: is required, here or in a file that url_file names"],
        "an API's URL is none of a database"
    );
}

#[test]
fn secret_headers_and_authorities_come_from_files() {
    let files = Files::new();
    let headers = files.write("headers", "Authorization: Bearer hunter2\r\n\nX-Tenant: 7\n");
    let set = |path: &Path| {
        format!("keyspaces.users.backend = {{ headers = {{ X-Shop = \"1\" }}, headers_file = {path:?} }}")
    };
    let (base, change) = (files.write("base.toml", HTTP), files.write("change.toml", &set(&headers)));
    let config = config::load(&[base, change], std::iter::empty()).unwrap();
    let backend = &config.keyspaces["users"].backend;
    let pairs: Vec<_> = backend.secret_headers.iter().collect();
    assert_eq!(pairs, [("Authorization", "Bearer hunter2"), ("X-Tenant", "7")]);
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    for (content, rule) in [
        ("Authorization hunter2", "line 1 must be `Name: value`"),
        ("X-Shop: hunter2", "x-shop is set twice"),
        ("Range: hunter2", "range can't be set"),
    ] {
        let errors = http_mistakes_of(&set(&files.write("bad", content)));
        assert!(errors.len() == 1 && errors[0].starts_with("keyspaces.users.backend.headers_file: "), "{errors:?}");
        assert!(errors[0].contains(rule) && !errors[0].contains("hunter2"), "{errors:?}");
    }
    let no_ca = files.write("ca", "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n");
    for path in [headers, no_ca] {
        let errors = http_mistakes_of(&format!("keyspaces.users.source.ca_file = {path:?}"));
        assert!(
            errors.len() == 1
                && errors[0].starts_with("keyspaces.users.source.ca_file: must be a file of PEM certificates"),
            "{errors:?}"
        );
        assert!(!errors[0].contains("hunter2"), "{errors:?}");
    }
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    for (key, values) in [
        ("filter.false_positive_rate", &["0", "1", "1.5", "-0.1", "nan", "inf", "-inf"][..]),
        ("filter.expected_keys", &["0", "-1", "1.5"]),
        ("filter.headroom", &["0.9", "nan", "inf"]),
        ("cache.jitter", &["-0.1", "1.1", "nan"]),
        ("cache.ttl", &["\"0s\"", "\"999y\"", "\"ten\"", "5"]),
        ("cache.max_value_bytes", &["\"1GiB\"", "-1", "\"big\""]),
        ("rebuild.min_keys_ratio", &["-0.1", "1.1", "nan"]),
        ("enforce_percent", &["101", "-1", "0.5"]),
        ("canary.sample_rate", &["-0.1", "1.1", "nan"]),
        ("canary.max_per_second", &["0", "-1", "100001"]),
        ("canary.proof", &["-1", "100001"]),
        ("rebuild.max_deleted_ratio", &["0", "1.1", "nan"]),
        ("rebuild.schedule", &["\"\"", "\"daily\"", "\"61 * * * *\"", "\"0 0 31 2 *\"", "5"]),
        ("backend.max_concurrency", &["0"]),
        ("backend.timeout", &["\"0ms\""]),
        ("deadline", &["\"0s\""]),
        ("key", &["\"number\""]),
    ] {
        for value in values {
            let errors = mistakes_of(&format!("keyspaces.users.{key} = {value}"));
            let at_key = |line: &String| line.starts_with(&format!("keyspaces.users.{key}: "));
            // Concurrency 0 also leaves no room for the one connection that is kept open.
            assert!(errors.iter().any(at_key) && errors.len() <= 2, "{key} = {value}: {errors:?}");
        }
    }
}

#[test]
fn statements_take_the_key_and_nothing_else() {
    for query in
        ["SELECT 1", "SELECT a FROM t WHERE a = ?", "SELECT a FROM t WHERE a = $1 AND b = $2", "SELECT '$1'", "  "]
    {
        let errors = mistakes_of(&format!("keyspaces.users.backend.query = \"{query}\""));
        assert!(errors.len() == 1 && errors[0].starts_with("keyspaces.users.backend.query: "), "{errors:?}");
    }
    load_set("keyspaces.users.backend = { url = \"sqlite:users.db\", query = \"SELECT a FROM t WHERE a = ?\" }")
        .unwrap();
    let mysql = |query: &str| {
        load_set(&format!("keyspaces.users.backend = {{ url = \"mariadb://db/app\", query = \"{query}\" }}"))
    };
    mysql("SELECT a FROM t WHERE a = ?").unwrap();
    for query in ["SELECT a FROM t WHERE a = $1", "SELECT a FROM t WHERE a = ? AND b = ?"] {
        let refused = mysql(query).unwrap_err().to_string();
        assert!(
            refused.contains("keyspaces.users.backend.query: must take the key as its only parameter, ?, is"),
            "{refused}"
        );
    }
    let errors = mistakes_of("keyspaces.users.source.query = \"SELECT a FROM t WHERE a > $1\"");
    assert!(errors[0].starts_with("keyspaces.users.source.query: must take no parameters"), "{errors:?}");
}

/// A valid keyspace whose backend is the set of the source's keys.
const SET: &str = r#"
[keyspaces.users]
freshness = "announced"
[keyspaces.users.backend]
kind = "set"
[keyspaces.users.source]
url = "postgres://db/app"
query = "SELECT id FROM users"
"#;

/// The errors of that keyspace with one override.
fn set_mistakes_of(setting: &str) -> Vec<String> {
    let files = Files::new();
    let (base, change) =
        (files.write("base.toml", SET), files.write("change.toml", &format!("keyspaces.users.{setting}")));
    config::load(&[base, change], std::iter::empty()).map_or_else(|errors| lines(&errors), |_| vec![])
}

#[test]
fn a_set_needs_a_source_of_its_own_and_nothing_else() {
    assert_eq!(set_mistakes_of("key = \"uuid\""), [""; 0]);
    assert_eq!(
        set_mistakes_of("source.url = \"\""),
        ["keyspaces.users.source.url: is required, here or in a file that url_file names"]
    );
    for setting in [
        "url = \"postgres://app:hunter2@db/app\"",
        "query = \"SELECT 1\"",
        "timeout = \"1s\"",
        "max_concurrency = 1",
        "max_queue = 1",
        "min_connections = 2",
        "statement_cache = 0",
        "absent_status = [410]",
        "absent_header = \"X-Row\"",
        "headers = { Accept = \"text/plain\" }",
    ] {
        let key = setting.split(' ').next().unwrap();
        let errors = set_mistakes_of(&format!("backend.{setting}"));
        let expected = format!("keyspaces.users.backend.{key}: is not used by a backend of kind \"set\"");
        assert!(errors.len() == 1 && errors[0].starts_with(&expected), "{errors:?}");
    }
    let errors = set_mistakes_of("cache.ttl = \"1m\"");
    assert!(
        errors.len() == 1 && errors[0].starts_with("keyspaces.users.cache: is not used by a backend"),
        "{errors:?}"
    );
}

/// The errors of the valid configuration with this in place of its source.
fn mistakes_with_sources(sources: &str) -> Vec<String> {
    let (text, _) = VALID.split_once("[keyspaces.users.source]").unwrap();
    load(&format!("{text}{sources}")).map_or_else(|errors| lines(&errors), |_| vec![])
}

#[test]
fn each_kind_of_source_needs_its_own_keys_and_refuses_those_of_others() {
    let source = |settings: &str| mistakes_with_sources(&format!("[keyspaces.users.source]\n{settings}"));
    let no_form = |kind: &str| {
        format!(
            "keyspaces.users.key: is required, because a source of kind \"{kind}\" (source) does not report the form of its keys"
        )
    };
    let uncounted = "keyspaces.users.filter.expected_keys: is required, because source can't count its keys before a scan, unless filter.kind = \"scalable\"";
    for (settings, expected) in [
        ("kind = \"file\"\npath = \"ids\"", vec![no_form("file")]),
        ("kind = \"file\"\npath = \"ids.gz\"", vec![uncounted.into(), no_form("file")]),
        ("kind = \"file\"", vec![no_form("file"), "keyspaces.users.source.path: is required".into()]),
        (
            "kind = \"redis\"\nset = \"users\"",
            vec![no_form("redis"), "keyspaces.users.source.url: is required where there is no [redis]".into()],
        ),
        ("kind = \"redis\"\nurl = \"redis://cache\"\npattern = \"user:*\"", vec![uncounted.into(), no_form("redis")]),
    ] {
        assert_eq!(source(settings), expected, "{settings}");
    }
    for (settings, error) in [
        (
            "kind = \"file\"\npath = \"ids\"\nquery = \"SELECT 1\"",
            "source.query: is not used by a source of kind \"file\"",
        ),
        (
            "kind = \"file\"\npath = \"ids\"\nurl = \"redis://x\"",
            "source.url: is not used by a source of kind \"file\"",
        ),
        ("query = \"SELECT 1\"\npath = \"ids\"", "source.path: is not used by a source of kind \"sql\""),
        ("query = \"SELECT 1\"\nset = \"users\"", "source.set: is not used by a source of kind \"sql\""),
        ("kind = \"redis\"\nurl = \"redis://x\"", "source.pattern: is required, or set"),
        (
            "kind = \"redis\"\nurl = \"postgres://x\"\nset = \"u\"",
            "source.url: must be a redis://, rediss://, redis+sentinel://, redis+cluster:// or unix:// URL, is \"postgres://x\"",
        ),
        (
            "kind = \"redis\"\nurl = \"redis://x\"\nset = \"u\"\npattern = \"u:*\"",
            "source.set: can't be set together with pattern",
        ),
        (
            "kind = \"redis\"\nurl = \"redis://x\"\nset = \"u\"\nstrip_prefix = \"u\"",
            "source.strip_prefix: is not used together with set",
        ),
        (
            "kind = \"redis\"\nurl = \"redis://x\"\npattern = \"us?r:*\"\nstrip_prefix = \"user:\"",
            "source.strip_prefix: must be a prefix of pattern, at most \"us\", is \"user:\"",
        ),
        ("kind = \"folder\"", "source.kind: must be one of \"sql\", \"http\", \"file\", \"redis\", is \"folder\""),
    ] {
        let errors = source(settings);
        assert!(errors.contains(&format!("keyspaces.users.{error}")), "{settings}: {errors:?}");
    }
}

#[test]
fn a_pattern_must_leave_out_our_own_entries() {
    let with = |pattern: &str, more: &str| {
        let text = format!(
            "redis.url = \"redis://cache\"\nkeyspaces.users.key = \"text\"\nkeyspaces.users.filter.expected_keys = 10\n\
             keyspaces.users.source = {{ kind = \"redis\", query = \"\", pattern = \"{pattern}\"{more} }}"
        );
        load_set(&text).map_or_else(|errors| lines(&errors), |_| vec![])
    };
    for pattern in ["*", "b*", "bloomguard:entry:users:*"] {
        let errors = with(pattern, "");
        assert!(errors.len() == 1 && errors[0].contains("not match bloomguard's own entries"), "{pattern}: {errors:?}");
    }
    for (pattern, more) in
        [("user:*", ""), ("bloom:*", ", strip_prefix = \"bloom:\""), ("*", ", url = \"redis://other\"")]
    {
        assert_eq!(with(pattern, more), [""; 0], "{pattern}");
    }
    let config = load_set(
        "redis.url = \"redis://cache\"\nkeyspaces.users.key = \"text\"\n\
         keyspaces.users.source = { kind = \"redis\", query = \"\", set = \"users\" }",
    );
    assert_eq!(
        only_source(&config.unwrap().keyspaces["users"]).url.expose(),
        "redis://cache",
        "the URL defaults to that of [redis]"
    );
}

#[test]
fn a_keyspace_that_is_polled_rests_on_that_unless_it_says_otherwise() {
    let files = Files::new();
    let freshness = |more: &str| {
        let toml = format!(
            "[keyspaces.users]\n{more}\nbackend = {{ url = \"sqlite:a.db\", query = \"SELECT a FROM t WHERE id = $1\" \
                }}\n\
             source = {{ query = \"SELECT id FROM t\", incremental.query = \"SELECT id, v FROM t WHERE v >= $1\" }}"
        );
        config::load(&[files.write("polled.toml", &toml)], std::iter::empty()).unwrap().keyspaces["users"].freshness
    };
    assert_eq!(freshness(""), config::Freshness::Polled, "and the schedule need not keep the promise");
    assert_eq!(freshness("freshness = \"announced\""), config::Freshness::Announced);
}

#[test]
fn announces_are_on_where_the_promise_rests_on_them_or_they_are_set() {
    let files = Files::new();
    let loaded = |more: &str| {
        let toml = format!(
            "[keyspaces.users]\n{more}\nbackend = {{ url = \"sqlite:a.db\", query = \"SELECT a FROM t WHERE id = $1\" \
                }}\nsource = {{ query = \"SELECT id FROM t\" }}"
        );
        config::load(&[files.write("announces.toml", &toml)], std::iter::empty())
    };
    for (more, announces) in [
        ("freshness = \"announced\"", true),
        ("freshness = \"announced\"\nannounces = true", true),
        ("freshness = \"static\"", false),
        ("freshness = \"static\"\nannounces = true", true),
    ] {
        assert_eq!(loaded(more).unwrap().keyspaces["users"].announces, Some(announces), "{more}");
    }
    let error = loaded("freshness = \"announced\"\nannounces = false").unwrap_err().to_string();
    assert!(error.contains("keyspaces.users.announces: must be true with freshness = \"announced\""), "{error}");
}

#[test]
fn polls_are_judged_by_what_they_can_keep() {
    let incremental = |more: &str| {
        format!(
            "keyspaces.users.source = {{ query = \"SELECT id FROM users\", incremental = {{ \
             query = \"SELECT id, v FROM users WHERE v >= $1\"{more} }} }}\n"
        )
    };
    let good = incremental("");
    let key = "keyspaces.users.source.incremental";
    for (toml, error) in [
        (incremental(", interval = \"0s\""), format!("{key}.interval: must be at least 1ms, is 0s")),
        (incremental(", overlap = \"2days\""), format!("{key}.overlap: must be at most 1day, is 2days")),
        (
            incremental(", watermark = \"SELECT $1\""),
            format!(
                "{key}.watermark: must take no parameters, is \"SELECT \
            $1\""
            ),
        ),
        (
            incremental("").replace("v >= $1", "v >= 1"),
            format!(
                "{key}.query: must take the watermark as its only parameter, $1, is \"SELECT id, v FROM users \
                WHERE v >= 1\""
            ),
        ),
        (
            incremental("").replace("v >= $1", "v >= $1 limit 5"),
            format!(
                "{key}.query: must list all rows, without LIMIT or FETCH: a poll reads them as a stream, is \"SELECT \
                    id, v FROM users WHERE v >= $1 limit 5\""
            ),
        ),
        (
            format!("{good}keyspaces.users.freshness = \"polled\"\nkeyspaces.users.max_staleness = \"1s\""),
            format!(
                "{key}.interval: must be shorter than max_staleness = 1s, otherwise the keyspace stops answering 404 between two polls, is 1s"
            ),
        ),
        (
            format!("{good}keyspaces.users.freshness = \"static\""),
            "keyspaces.users.freshness: \"static\" is a key set that does not change: leave source.incremental \
                out"
            .to_owned(),
        ),
        (
            "keyspaces.users.freshness = \"polled\"".to_owned(),
            "keyspaces.users.freshness: \"polled\" needs source.incremental, which says how new keys are \
                found"
                .to_owned(),
        ),
        (
            "keyspaces.users.source = { kind = \"file\", query = \"\", path = \"x\", incremental = {} \
                }\nkeyspaces.users.key = \"text\""
                .to_owned(),
            format!("{key}: is not used by a source of kind \"file\""),
        ),
        (
            "keyspaces.users.source = [{ query = \"SELECT 1\" }, \
                { query = \"SELECT 1\", incremental = { query = \"SELECT 1, $1\" } }]"
                .to_owned(),
            "keyspaces.users.source[0].incremental: is required: all sources of a keyspace are polled, or \
                none"
                .to_owned(),
        ),
    ] {
        assert_eq!(mistakes_of(&toml), [error], "{toml}");
    }
}

#[test]
fn several_sources_are_judged_each_by_its_number() {
    let head = "[[keyspaces.users.source]]\n";
    let good = "query = \"SELECT id FROM a\"\n";
    assert_eq!(mistakes_with_sources(&format!("{head}{good}{head}url = \"sqlite:b.db\"\n{good}")), [""; 0]);
    for (second, error) in [
        ("", "source[1].query: is required"),
        ("qurey = 1\nquery = \"SELECT 1\"", "source[1].qurey: unknown key; did you mean query?"),
        ("query = 5", "source[1].query: must be a string, is 5"),
        ("query = \"SELECT $1\"", "source[1].query: must take no parameters, is \"SELECT $1\""),
        (
            "kind = \"set\"\nquery = \"SELECT 1\"",
            "source[1].kind: must be one of \"sql\", \"http\", \"file\", \"redis\", is \"set\"",
        ),
        (
            "query = \"SELECT 1\"\nurl_file = \"/nonexistent\"",
            "source[1].url_file: must be a readable file, is \"/nonexistent\": No such file or directory (os error 2)",
        ),
        (
            "kind = \"file\"\npath = \"x\"",
            "key: is required, because a source of kind \"file\" (source[1]) does not report the form of its keys",
        ),
    ] {
        assert_eq!(
            mistakes_with_sources(&format!("{head}{good}{head}{second}")),
            [format!("keyspaces.users.{error}")],
            "{second}"
        );
    }
    assert_eq!(mistakes_of("keyspaces.users.source = []"), ["keyspaces.users.source: must hold at least one source"]);
    assert_eq!(
        mistakes_of("keyspaces.users.source = [{ query = \"SELECT 1\" }, 5]"),
        ["keyspaces.users.source[1]: must be a table, is 5"]
    );
    assert_eq!(
        mistakes_of("keyspaces.users.source = [[\"sql\"]]"),
        ["keyspaces.users.source[0]: must be a table, is an array"]
    );
    assert_eq!(
        mistakes_of("keyspaces.users.source = 5"),
        ["keyspaces.users.source: must be a table or an array of tables, is 5"]
    );
}

#[test]
fn a_schedule_that_breaks_the_promise_is_refused_with_a_remedy() {
    let errors = mistakes_of("keyspaces.users.freshness = \"rebuilt\"");
    assert_eq!(errors.len(), 1, "{errors:?}");
    for part in
        ["keyspaces.users.max_staleness: ", "1day 5m", "rebuild.schedule", "rebuild.jitter", "freshness", "is 10m"]
    {
        assert!(errors[0].contains(part), "{part} is missing: {errors:?}");
    }
    let rebuilt = |rest: &str| load_set(&format!("[keyspaces.users]\nfreshness = \"rebuilt\"\n{rest}"));
    rebuilt("max_staleness = \"25h\"").unwrap();
    rebuilt("rebuild = { schedule = \"*/5 * * * *\", jitter = \"1m\" }").unwrap();
    rebuilt("rebuild = { schedule = \"*/5 * * * *\", jitter = \"5m\" }").expect_err("5m + 5m is not less than 10m");
    rebuilt("max_staleness = \"3d\"\nrebuild.schedule = \"0 9 * * MON-FRI\"").expect_err("weekends are longer");
    rebuilt("enforcement = \"shadow\"").unwrap();
    load_set("keyspaces.users.freshness = \"static\"").unwrap();
}

#[test]
fn listeners_off_loopback_need_a_token() {
    let files = Files::new();
    let token = files.write("token", "s3cr3t-token\n");
    let token = token.display();
    for (setting, path) in [
        ("server.listen = \"0.0.0.0:4040\"", "server.listen: "),
        ("server.listen = \"[::]:4040\"", "server.listen: "),
        ("server.admin_listen = \"10.0.0.1:4042\"", "server.admin_listen: "),
        ("server = { listen = \"0.0.0.0:4040\", token_file = \"/nonexistent\" }", "server.token_file: "),
    ] {
        let errors = mistakes_of(setting);
        assert!(errors.len() == 1 && errors[0].starts_with(path), "{setting}: {errors:?}");
    }
    load_set("server = { listen = \"0.0.0.0:4040\", allow_unauthenticated = true }").unwrap();
    load_set("server.listen = \"unix:/run/bloomguard.sock\"").unwrap();
    let open = format!(
        "server = {{ listen = \"0.0.0.0:4040\", token_file = \"{token}\", admin_listen = \"0.0.0.0:4042\", \
            admin_token_file = \"{token}\" }}"
    );
    let config = load_set(&open).unwrap();
    assert_eq!(config.server.token.first().map(|token| token.expose()), Some("s3cr3t-token"));
    assert_eq!(config.server.admin_token.first().map(|token| token.expose()), Some("s3cr3t-token"));
    assert!(!format!("{config:?}").contains("s3cr3t"));
}

#[test]
fn listeners_must_differ() {
    let errors = mistakes_of("server.admin_listen = \"127.0.0.1:4041\"");
    assert!(
        errors.len() == 1 && errors[0].starts_with("server.admin_listen: must not take the address of"),
        "{errors:?}"
    );
    load_set(
        "server = { listen = \"127.0.0.1:0\", admin_listen = \"127.0.0.1:0\", telemetry_listen = \"127.0.0.1:0\" }",
    )
    .unwrap();
}

#[test]
fn later_files_override_earlier_ones_key_by_key() {
    let config = load_set("[keyspaces.users.backend]\nmax_queue = 7").unwrap();
    let backend = &config.keyspaces["users"].backend;
    assert_eq!((backend.max_queue, backend.query.as_str()), (7, "SELECT name FROM users WHERE id = $1"));
}

#[test]
fn only_double_underscore_variables_override() {
    let variables = [
        ("BLOOMGUARD_PORT", "tcp://10.0.0.1:4040"),
        ("BLOOMGUARD_SERVICE_HOST", "10.0.0.1"),
        ("BLOOMGUARD__KEYSPACES__USERS__FILTER__EXPECTED_KEYS", "5000"),
        ("BLOOMGUARD__KEYSPACES__USERS__DEADLINE", "1s"),
        ("BLOOMGUARD__LOG__LEVEL", "debug"),
    ];
    let config = load_with(VALID, &variables).unwrap();
    assert_eq!(config.keyspaces["users"].filter.expected_keys, Some(5000));
    assert_eq!(config.keyspaces["users"].deadline, Duration::from_secs(1));
    assert_eq!(config.log.level, "debug");
}

#[test]
fn a_variable_that_reads_as_a_number_can_be_text() {
    let variables = [
        ("BLOOMGUARD__SERVER__UNIX_MODE", "600"),
        ("BLOOMGUARD__REDIS__KEY_PREFIX", "42"),
        ("BLOOMGUARD__REDIS__URL", "redis://h"),
    ];
    let config = load_with(VALID, &variables).unwrap();
    assert_eq!(config.server.socket_mode(), Some(0o600));
    assert_eq!(config.redis.unwrap().key_prefix, "42");
}

#[test]
fn a_mistake_in_a_variable_names_the_variable() {
    let variables = [
        ("BLOOMGUARD__KEYSPACES__USERS__FILTER__FALSE_POSITIVE_RATE", "2"),
        ("BLOOMGUARD__SERVER__WORKERS", "many"),
        ("BLOOMGUARD__SERVER__COLOUR", "red"),
        ("BLOOMGUARD__LOG", "debug"),
        ("BLOOMGUARD__", "x"),
    ];
    let errors = lines(&load_with(VALID, &variables).unwrap_err());
    let expected = [
        "BLOOMGUARD__: does not name a key; the form is BLOOMGUARD__SECTION__KEY",
        "keyspaces.users.filter.false_positive_rate: must be greater than 0 and less than 1, is 2 (set by \
         BLOOMGUARD__KEYSPACES__USERS__FILTER__FALSE_POSITIVE_RATE)",
        "log: must be a table, is \"debug\" (set by BLOOMGUARD__LOG)",
        "server.colour: unknown key (set by BLOOMGUARD__SERVER__COLOUR)",
        "server.workers: must be a whole number, 0 or more, is \"many\" (set by BLOOMGUARD__SERVER__WORKERS)",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn urls_come_from_files_where_files_are_named() {
    let files = Files::new();
    let url = files.write("url", "postgres://app:hunter2@primary/app\n");
    let text = VALID.replace("url = \"postgres://app:hunter2@db/app\"", &format!("url_file = \"{}\"", url.display()));
    let config = load(&text).unwrap();
    let users = &config.keyspaces["users"];
    assert_eq!(users.backend.url.expose(), "postgres://app:hunter2@primary/app");
    assert_eq!(
        only_source(users).url.expose(),
        users.backend.url.expose(),
        "the source's URL defaults to the backend's"
    );

    let both = mistakes_of(&format!("keyspaces.users.backend.url_file = \"{}\"", url.display()));
    assert_eq!(both, ["keyspaces.users.backend.url_file: can't be set together with url"]);
    for (content, why) in [(None, "must be a readable file"), (Some(" \n"), "must be a file that is not empty")] {
        let path = content.map_or(files.dir.path().join("none"), |content| files.write("blank", content));
        let errors = mistakes_of(&format!("keyspaces.users.source.url_file = \"{}\"", path.display()));
        assert!(errors.len() == 1 && errors[0].contains(why), "{errors:?}");
    }
    let wrong = files.write("wrong", "https://app:hunter2@api/users");
    let errors = mistakes_of(&format!("keyspaces.users.source.url_file = \"{}\"", wrong.display()));
    assert!(
        errors[0].starts_with("keyspaces.users.source.url_file: is of scheme https, which needs kind = \"http\""),
        "{errors:?}"
    );
}

#[test]
fn secrets_are_never_shown() {
    let config = load_set("redis.url = \"redis://:hunter2@cache\"").unwrap();
    assert_eq!(config.keyspaces["users"].backend.url.expose(), "postgres://app:hunter2@db/app");
    assert!(!format!("{config:?} {config:#?}").contains("hunter2"));
    for setting in [
        "keyspaces.users.backend = \"postgres://app:hunter2@db\"",
        "keyspaces.users.backend.url = \"postgres://app:hunter2@db:99999/app\"",
        "keyspaces.users.backend.url = \"postgres://app:hun#ter2@db/hunter2\"",
        "redis.url = \"redis://app:hunter2@cache/zero\"",
        "redis.url = \"redis+sentinel://app:hunter2@one,two\"",
        "redis.url = \"redis+cluster://app:hunter2@one,two/5\"",
        "redis = \"redis://:hunter2@cache\"",
        "server.token = \"hunter2\"",
        "server.listen = \"http://app:hunter2@h\"",
        "redis.url = \"redis://:hunter2@h\nx",
    ] {
        let errors = mistakes_of(setting);
        assert!(!errors.iter().any(|line| line.contains("hunter2")), "{errors:?}");
    }
}

#[test]
fn unreadable_files_are_named_with_line_and_column() {
    let files = Files::new();
    let broken = files.write("broken.toml", "[log]\nlevel = \n[server\nworkers = 1\n");
    let missing = files.dir.path().join("missing.toml");
    let errors = lines(&config::load(&[broken.clone(), missing.clone()], std::iter::empty()).unwrap_err());
    let at = |line: u32| format!("{}:{line}:", broken.display());
    assert!(errors.iter().any(|m| m.starts_with(&at(2))), "{errors:?}");
    assert!(errors.iter().any(|m| m.starts_with(&at(3))), "{errors:?}");
    assert!(errors.iter().any(|m| m.starts_with(&format!("{}: can't be read", missing.display()))), "{errors:?}");
}

#[test]
fn a_configuration_without_keyspaces_guards_nothing() {
    let errors = lines(&load("[log]\nlevel = \"info\"").unwrap_err());
    assert_eq!(errors, ["keyspaces: must hold at least one keyspace, as [keyspaces.NAME]"]);
}

#[test]
fn log_levels_are_words_that_exist_or_filters() {
    for level in ["info", "TRACE", "info,bloomguard::keyspace=debug", "bloomguard=trace"] {
        load_set(&format!("log.level = \"{level}\"")).unwrap();
    }
    for level in ["inof", "", "bloomguard=loud"] {
        let errors = mistakes_of(&format!("log.level = \"{level}\""));
        assert!(errors[0].starts_with("log.level: "), "{errors:?}");
    }
}

#[test]
fn serving_without_a_configuration_ends_with_a_hint() {
    let files = Files::new();
    for arguments in [&[][..], &["serve"]] {
        let output = bloomguard(arguments, files.dir.path(), &[]);
        assert_eq!(output.status.code(), Some(78));
        assert!(text(&output.stderr).contains("--config FILE"), "{}", text(&output.stderr));
    }
}

#[test]
fn serving_a_bad_configuration_ends_with_its_mistakes() {
    let files = Files::new();
    let path = files.write("bad.toml", VALID);
    let variables = [("BLOOMGUARD__SERVER__WORKERS", "-1")];
    let output = bloomguard(&["--config", path.to_str().unwrap()], files.dir.path(), &variables);
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stderr).starts_with("server.workers: "), "{}", text(&output.stderr));
}
