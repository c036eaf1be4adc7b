//! What a Redis server says about itself.

/// The parts of `INFO` that decide whether a scan is trustworthy.
#[derive(Debug)]
pub(super) struct Server {
    /// The process and its history: another one holds other keys, or the same ones in another order.
    pub(super) dataset: (String, String),
    pub(super) is_primary: bool,
    pub(super) is_clustered: bool,
    eviction: Option<String>,
}

impl Server {
    /// Reads the text of `INFO`; `None` if it lacks what every Redis sends.
    pub(super) fn read(info: &str) -> Option<Self> {
        let text = |name: &str| field(info, name).map(str::to_owned);
        Some(Self {
            dataset: (text("run_id")?, text("master_replid")?),
            is_primary: field(info, "role")? == "master",
            is_clustered: field(info, "cluster_enabled") == Some("1"),
            eviction: text("maxmemory_policy"),
        })
    }

    /// A warning for operators if keys can disappear without a delete: the filter would then call them absent.
    pub(super) fn warning(&self, expires: bool) -> Option<String> {
        let eviction = self.eviction.as_deref().unwrap_or("unknown");
        if eviction != "noeviction" {
            return Some(format!(
                "the key source's maxmemory-policy is {eviction}, under which Redis drops keys by itself, and the filter then calls them absent: set noeviction"
            ));
        }
        expires
            .then(|| "the key source's set expires, and with it every key: take its expiry away (PERSIST)".to_owned())
    }
}

/// The value of `name:value` in the text of an INFO command.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nrun_id:abc\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n\
                        master_replid:def\r\nmaster_replid2:000\r\n# Cluster\r\ncluster_enabled:0\r\n";

    #[test]
    fn a_server_is_known_by_its_process_and_its_history() {
        let server = Server::read(INFO).unwrap();
        assert_eq!(server.dataset, ("abc".to_owned(), "def".to_owned()));
        assert!(server.is_primary && !server.is_clustered);
        assert!(!Server::read(&INFO.replace("role:master", "role:slave")).unwrap().is_primary);
        assert!(Server::read(&INFO.replace("run_id", "pid")).is_none());
    }

    #[test]
    fn keys_that_can_go_away_by_themselves_are_warned_of() {
        let server = Server::read(INFO).unwrap();
        assert_eq!(server.warning(false), None);
        assert!(server.warning(true).unwrap().contains("expires"));
        let evicting = Server::read(&INFO.replace("noeviction", "allkeys-lru")).unwrap();
        assert!(evicting.warning(false).unwrap().contains("allkeys-lru"));
    }
}
