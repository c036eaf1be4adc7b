//! Where to connect: to one server, to the primary that sentinels name, or to the node of a cluster that owns a
//! keyspace.
//!
//! Not the sentinel and cluster clients of the crate `redis`: marks and log entries must share one known connection, and
//! those clients choose and replace connections by themselves.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

use super::connection::{Connection, Dialer, ServerKind};
use super::error::ConnectError;
use crate::config::RedisPlace;

/// Cluster nodes that are asked at once: one of them answers, unless most of the cluster is gone.
const NODES_ASKED: usize = 5;
/// Nodes that are remembered: no cluster may have more.
const NODES_KNOWN: usize = 1000;

/// The server that a link connects to.
pub(super) enum ServerPlace {
    Server(ConnectionInfo),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

impl ServerPlace {
    /// `owned`: the name whose owner is meant in a cluster.
    pub(super) fn new(place: RedisPlace, owned: String, dialer: &Arc<Dialer>) -> RedisResult<Self> {
        let dialer = Arc::clone(dialer);
        Ok(match place {
            RedisPlace::Server(info) => Self::Server(info),
            RedisPlace::Sentinels { sentinels, service, server, sentinel } => {
                let place = |(host, port)| connection_info(host, port, &sentinel).map(Sentinel::new);
                let sentinels = sentinels.into_iter().map(place).collect::<RedisResult<_>>()?;
                Self::Sentinels(Sentinels { sentinels, service, server, dialer })
            }
            RedisPlace::Cluster { nodes, login } => {
                Self::Cluster(Cluster { seeds: nodes, learnt: Mutex::default(), owned, login, dialer })
            }
        })
    }

    /// Where to connect now.
    pub(super) async fn find(&self) -> Result<ConnectionInfo, ConnectError> {
        match self {
            Self::Server(info) => Ok(info.clone()),
            Self::Sentinels(sentinels) => sentinels.ask().await.primary(&sentinels.server),
            Self::Cluster(cluster) => cluster.find().await,
        }
    }

    /// Returns true if sentinels name another primary than `address` by now.
    ///
    /// A primary that is cut off from the sentinels, and not from us, does not learn this. A cluster node needs no such
    /// check: it stops answering once it is cut off from most others.
    pub(super) async fn has_moved_from(&self, address: &ConnectionAddr) -> bool {
        match self {
            Self::Server(_) | Self::Cluster(_) => false,
            Self::Sentinels(sentinels) => {
                let answers = sentinels.ask().await;
                // A few sentinels that are cut off from the others may have old information.
                answers.by_most && answers.primary(&sentinels.server).is_ok_and(|now| now.addr() != address)
            }
        }
    }
}

/// The sentinels of one primary.
pub(super) struct Sentinels {
    sentinels: Vec<Sentinel>,
    service: String,
    server: RedisConnectionInfo,
    dialer: Arc<Dialer>,
}

/// One sentinel, and the connection to it, if there is one.
struct Sentinel {
    place: ConnectionInfo,
    connection: Mutex<Option<Connection>>,
}

impl Sentinels {
    /// Asks all sentinels, and waits for a majority.
    async fn ask(&self) -> SentinelAnswers {
        let mut asked: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| sentinel.primary_of(&self.service, &self.dialer)).collect();
        let (mut answers, mut latest, most) = (0, None, self.sentinels.len() / 2 + 1);
        let mut errors = Vec::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(named) => {
                    answers += 1;
                    latest = latest.max(named);
                }
                Err(error) => errors.push(error),
            }
            if answers >= most {
                break;
            }
        }
        SentinelAnswers { latest, any: answers > 0, by_most: answers >= most, error: ConnectError::of_several(errors) }
    }
}

/// Epoch of the failover that promoted it, host, port.
type Named = Option<(u64, String, u16)>;

/// The sentinels' answers.
struct SentinelAnswers {
    /// The primary of the latest failover: a sentinel that was cut off names an older one.
    latest: Named,
    any: bool,
    by_most: bool,
    /// Why one did not answer.
    error: Option<ConnectError>,
}

impl SentinelAnswers {
    fn primary(self, login: &RedisConnectionInfo) -> Result<ConnectionInfo, ConnectError> {
        match self.latest {
            Some((_, host, port)) => connection_info(host, port, login).map_err(|e| ConnectError::from(&e)),
            None if self.any => Err(ConnectError::Nowhere("its sentinels know no primary of this name")),
            None => Err(ConnectError::NoSentinel(Box::new(self.error.unwrap_or(ConnectError::Timeout)))),
        }
    }
}

impl Sentinel {
    const fn new(place: ConnectionInfo) -> Self {
        Self { place, connection: Mutex::new(None) }
    }

    async fn primary_of(&self, service: &str, dialer: &Dialer) -> Result<Named, ConnectError> {
        let kept = self.connection.lock().clone();
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let connection = dialer.dial(&self.place, ServerKind::Sentinel).await?;
                // Stored here: a caller with a majority does not wait for this answer.
                self.connection.lock().insert(connection).clone()
            }
        };
        let named = Self::ask(connection, service).await;
        if named.is_err() {
            *self.connection.lock() = None;
        }
        named.map_err(|error| ConnectError::from(&error))
    }

    async fn ask(mut connection: Connection, service: &str) -> RedisResult<Named> {
        let mut address = redis::cmd("SENTINEL");
        address.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        let Some((host, port)) = address.query_async(&mut connection).await? else { return Ok(None) };
        let mut facts = redis::cmd("SENTINEL");
        facts.arg("MASTER").arg(service);
        let facts: HashMap<String, String> = facts.query_async(&mut connection).await?;
        let epoch = facts.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Some((epoch, host, port)))
    }
}

/// A cluster, where one node owns the keyspace.
pub(super) struct Cluster {
    seeds: Vec<(String, u16)>,
    /// The nodes of the last answer: the seeds may all be gone one day.
    learnt: Mutex<Vec<(String, u16)>>,
    owned: String,
    login: RedisConnectionInfo,
    dialer: Arc<Dialer>,
}

impl Cluster {
    /// The primary that owns the name, according to the first node that answers. An outdated node names one that is not
    /// the owner, which rejects commands itself.
    async fn find(&self) -> Result<ConnectionInfo, ConnectError> {
        let mut nodes = self.seeds.clone();
        nodes.extend(self.learnt.lock().iter().filter(|node| !self.seeds.contains(node)).cloned());
        // Each attempt asks others: a node that is cut off may keep naming a primary that is gone.
        nodes.shuffle(&mut rand::rng());
        nodes.truncate(NODES_ASKED);
        let mut asked: FuturesUnordered<_> = nodes.into_iter().map(|(host, port)| self.owner_by(host, port)).collect();
        let mut errors = Vec::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok((host, port)) => {
                    return connection_info(host, port, &self.login).map_err(|e| ConnectError::from(&e));
                }
                Err(error) => errors.push(error),
            }
        }
        Err(ConnectError::of_several(errors).unwrap_or(ConnectError::Nowhere("its cluster has no nodes")))
    }

    async fn owner_by(&self, host: String, port: u16) -> Result<(String, u16), ConnectError> {
        let place = connection_info(host.clone(), port, &self.login).map_err(|e| ConnectError::from(&e))?;
        let mut connection = self.dialer.dial(&place, ServerKind::Redis).await?;
        let mut commands = redis::pipe();
        commands.cmd("CLUSTER").arg("KEYSLOT").arg(&self.owned).cmd("CLUSTER").arg("SLOTS");
        let answer = commands.query_async::<(u16, Vec<Vec<redis::Value>>)>(&mut connection).await;
        let (slot, ranges) = answer.map_err(|e| ConnectError::from_first_commands(&e))?;
        let ranges: Vec<Range> = ranges.into_iter().filter_map(|range| Range::read(range, &host)).collect();
        let owner = ranges
            .iter()
            .find(|range| (range.first..=range.last).contains(&slot))
            .and_then(|range| range.nodes.first().cloned());
        let mut nodes: Vec<_> = ranges.into_iter().flat_map(|range| range.nodes).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.truncate(NODES_KNOWN);
        *self.learnt.lock() = nodes;
        owner.ok_or(ConnectError::Nowhere("no node of the cluster owns the keyspace's hash slot"))
    }
}

/// Slots of a primary, and their servers: the primary first, then its replicas.
#[derive(Debug, PartialEq)]
struct Range {
    first: u16,
    last: u16,
    nodes: Vec<(String, u16)>,
}

impl Range {
    /// One element of the answer to `CLUSTER SLOTS`. The answering node has the name that it was `asked` under.
    fn read(range: Vec<redis::Value>, asked: &str) -> Option<Self> {
        let mut values = range.into_iter();
        let mut slot = || u16::from_redis_value(values.next()?).ok();
        let (first, last) = (slot()?, slot()?);
        let node = |value: redis::Value| {
            let mut values = Vec::<redis::Value>::from_redis_value(value).ok()?.into_iter();
            let host = Option::<String>::from_redis_value(values.next()?).ok()?.filter(|host| !host.is_empty());
            Some((host.unwrap_or_else(|| asked.to_owned()), u16::from_redis_value(values.next()?).ok()?))
        };
        Some(Self { first, last, nodes: values.filter_map(node).collect() })
    }
}

fn connection_info(host: String, port: u16, login: &RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
    Ok((host, port).into_connection_info()?.set_redis_settings(login.clone()))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn a_node_without_a_name_of_its_own_is_called_as_it_was_asked() {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        let range =
            vec![Value::Int(5), Value::Int(9), node(Value::Nil, 7000), node(text(""), 7001), node(text("b"), 7002)];
        let nodes = vec![("a".to_owned(), 7000), ("a".to_owned(), 7001), ("b".to_owned(), 7002)];
        assert_eq!(Range::read(range, "a"), Some(Range { first: 5, last: 9, nodes }));
        assert_eq!(Range::read(vec![Value::Int(5), text("x")], "a"), None);
    }
}
