//! The connection to a server or to a cluster. Owns how one is found, made and given up. Never knows
//! what the commands mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{
    AggregateOp, MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo, SingleNodeRoutingInfo,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo as _, RedisError,
    RedisResult, Value,
};
use tokio::sync::Mutex;

/// How long a connection lives that owes an answer. Who asks has less patience, so this only frees
/// what nobody waits for.
const GIVEN_UP: Duration = Duration::from_secs(120);
/// How often a cluster's client tries a command again by itself, while the cluster moves.
const CLUSTER_TRIES: u32 = 3;
/// About how many names a server looks at for one answer of a walk over all.
const NAMES_AT_ONCE: usize = 1000;

/// A connection that is made when it is needed, and made again after it failed.
pub(super) struct Connector {
    urls: Vec<String>,
    /// How long an answer is waited for.
    limit: Duration,
    open: Mutex<Option<Connection>>,
    /// How many connections were opened.
    opened: AtomicU64,
}

/// An open connection. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    One(MultiplexedConnection),
    /// To all masters of a cluster.
    Cluster(ClusterConnection),
}

impl Connector {
    pub(super) fn new(urls: &[String], limit: Duration) -> Self {
        Self {
            urls: urls.to_vec(),
            limit,
            open: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// Which connection is open. Another one may lead to a server that knows nothing of the one before.
    pub(super) fn number(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Sends commands at once and waits for all answers, which takes one round trip. After any
    /// failure the connection is given up, because the server may have become a replica, or another
    /// one may answer at its address.
    pub(super) async fn ask(&self, commands: Vec<Cmd>) -> RedisResult<Vec<Value>> {
        self.ask_within(self.limit, commands).await
    }

    /// Sends commands at once with another limit for the answer, because there is much to send.
    pub(super) async fn ask_within(
        &self,
        limit: Duration,
        commands: Vec<Cmd>,
    ) -> RedisResult<Vec<Value>> {
        // To nothing there is no answer.
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let commands: Arc<[Cmd]> = commands.into();
        self.with(limit, |mut connection| {
            let commands = Arc::clone(&commands);
            async move { connection.ask(&commands).await }
        })
        .await
    }

    /// Waits until `replicas` replicas have what this connection wrote, for at most half of the time
    /// that an answer may take. Returns how many have it. In a cluster this is the lowest number of
    /// all masters. A connection that died since then says nothing of what it wrote, so no other one
    /// is asked.
    pub(super) async fn replicated(&self, replicas: u8) -> RedisResult<u8> {
        let patience = self.limit / 2;
        let Some(mut connection) = self.open.lock().await.clone() else {
            return Ok(0);
        };
        let asked = connection.replicated(replicas, patience);
        let had = tokio::time::timeout(self.limit, asked).await;
        let had = had.unwrap_or_else(|_| Err((ErrorKind::Io, "no answer in time").into()));
        if had.is_err() {
            self.give_up().await;
        }
        Ok(u8::try_from(had?).unwrap_or(u8::MAX))
    }

    /// The masters that hold the keys.
    pub(super) async fn masters(&self) -> RedisResult<Vec<Master>> {
        self.with(self.limit, |mut connection| async move {
            connection.masters().await
        })
        .await
    }

    /// Some names of keys that fit a pattern, and where the next ones begin: 0 if there are no more.
    /// A name may come twice.
    pub(super) async fn names(
        &self,
        master: &Master,
        from: u64,
        pattern: &[u8],
    ) -> RedisResult<(u64, Vec<Vec<u8>>)> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(from)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(NAMES_AT_ONCE);
        let answer = self
            .with(self.limit, |mut connection| {
                let (master, scan) = (master.clone(), scan.clone());
                async move { connection.ask_one(&master, scan).await }
            })
            .await?;
        Ok(redis::from_redis_value(answer)?)
    }

    /// Works with the open connection, or opens one. A connection that was open may have died
    /// unnoticed, with a server that is running again by now. The work is then done once more with a
    /// new one.
    async fn with<T, F>(&self, limit: Duration, work: impl Fn(Connection) -> F) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let work = async {
            let (connection, fresh) = self.connection().await?;
            match work(connection).await {
                Err(error) if !fresh && error.is_io_error() && !error.is_timeout() => {
                    self.give_up().await;
                    work(self.connection().await?.0).await
                }
                outcome => outcome,
            }
        };
        let outcome = tokio::time::timeout(limit, work).await;
        let late = |_| RedisError::from((ErrorKind::Io, "no answer in time"));
        let outcome = outcome.map_err(late).and_then(|outcome| outcome);
        if outcome.is_err() {
            self.give_up().await;
        }
        outcome
    }

    /// The connection, and whether it is new.
    async fn connection(&self) -> RedisResult<(Connection, bool)> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok((connection.clone(), false));
        }
        let new = Connection::open(&self.urls, self.limit).await?;
        self.opened.fetch_add(1, Ordering::AcqRel);
        Ok((open.insert(new).clone(), true))
    }

    async fn give_up(&self) {
        *self.open.lock().await = None;
    }
}

/// A server that holds keys. `None` if it is the only one.
#[derive(Clone)]
pub(super) struct Master(Option<(String, u16)>);

impl Connection {
    /// Asks the first server that answers what it is, and connects to it or to its cluster.
    async fn open(urls: &[String], limit: Duration) -> RedisResult<Self> {
        // A server that does not answer must not use up the time of the others.
        let connecting = limit / 3;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connecting))
            .set_response_timeout(Some(GIVEN_UP));
        let probes = urls.iter().map(|url| Box::pin(Self::probe(url, &config)));
        let probes: Vec<_> = probes.collect();
        if probes.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "no url is given").into());
        }
        let ((one, in_cluster), _) = select_ok(probes).await?;
        if !in_cluster {
            return Ok(Self::One(one));
        }
        let client = ClusterClient::builder(urls.iter().map(String::as_str))
            .connection_timeout(connecting)
            .response_timeout(GIVEN_UP)
            .overall_response_timeout(Some(GIVEN_UP))
            .retries(CLUSTER_TRIES)
            .build()?;
        client.get_async_connection().await.map(Self::Cluster)
    }

    /// Connects to a server, and asks whether it belongs to a cluster.
    async fn probe(
        url: &str,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, bool)> {
        let client = Client::open(url)?;
        let mut one = client
            .get_multiplexed_async_connection_with_config(config)
            .await?;
        // Any user may say hello. Where even that is forbidden, INFO may not be.
        let hello: RedisResult<Value> = redis::cmd("HELLO").query_async(&mut one).await;
        if let Ok(hello) = hello {
            return Ok((one, is_cluster(&hello)));
        }
        let mut info = redis::cmd("INFO");
        let asked: RedisResult<String> = info.arg("server").query_async(&mut one).await;
        // A server that may not be asked is taken for what most are.
        Ok((
            one,
            asked.is_ok_and(|info| info.contains("redis_mode:cluster")),
        ))
    }

    async fn ask(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        let answers = match self {
            Self::One(one) => {
                let mut pipeline = redis::pipe();
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                one.req_packed_commands(&pipeline, 0, commands.len())
                    .await?
            }
            // The cluster's client sends each command to its master. What goes to the same master
            // at once shares a connection, and so a round trip.
            Self::Cluster(cluster) => {
                let asked = commands.iter().map(|command| {
                    let mut cluster = cluster.clone();
                    async move { cluster.req_packed_command(command).await }
                });
                join_all(asked)
                    .await
                    .into_iter()
                    .collect::<RedisResult<_>>()?
            }
        };
        answers.into_iter().map(Value::extract_error).collect()
    }

    async fn masters(&mut self) -> RedisResult<Vec<Master>> {
        let cluster = match self {
            Self::One(_) => return Ok(vec![Master(None)]),
            Self::Cluster(cluster) => cluster,
        };
        let slots = redis::cmd("CLUSTER")
            .arg("SLOTS")
            .query_async(cluster)
            .await?;
        let slots: Vec<Vec<Value>> = redis::from_redis_value(slots)?;
        let mut masters = Vec::new();
        for mut range in slots {
            // The first and the last slot, the master, and then its replicas. A node is its host, its
            // port and more.
            if range.len() > 2
                && let Value::Array(mut node) = range.swap_remove(2)
                && node.len() > 1
            {
                node.truncate(2);
                masters.push(redis::from_redis_value(Value::Array(node))?);
            }
        }
        masters.sort_unstable();
        masters.dedup();
        Ok(masters.into_iter().map(Some).map(Master).collect())
    }

    async fn ask_one(&mut self, master: &Master, command: Cmd) -> RedisResult<Value> {
        let answer = match (self, &master.0) {
            (Self::Cluster(cluster), Some((host, port))) => {
                let (host, port) = (host.clone(), *port);
                let there = SingleNodeRoutingInfo::ByAddress { host, port };
                cluster
                    .route_command(command, RoutingInfo::SingleNode(there))
                    .await?
            }
            (Self::Cluster(cluster), None) => cluster.req_packed_command(&command).await?,
            (Self::One(one), _) => one.req_packed_command(&command).await?,
        };
        answer.extract_error()
    }

    async fn replicated(&mut self, replicas: u8, patience: Duration) -> RedisResult<u64> {
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas)
            .arg(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        let answer = match self {
            Self::One(one) => one.req_packed_command(&wait).await?,
            Self::Cluster(cluster) => {
                let lowest = ResponsePolicy::Aggregate(AggregateOp::Min);
                let all = (MultipleNodeRoutingInfo::AllMasters, Some(lowest));
                cluster
                    .route_command(wait, RoutingInfo::MultiNode(all))
                    .await?
            }
        };
        Ok(redis::from_redis_value(answer.extract_error()?)?)
    }
}

/// Whether a server that answers HELLO so belongs to a cluster: `mode` is followed by what it is.
fn is_cluster(hello: &Value) -> bool {
    let fields: Vec<&Value> = match hello {
        Value::Array(fields) => fields.iter().collect(),
        Value::Map(fields) => fields.iter().flat_map(|(name, of)| [name, of]).collect(),
        _ => return false,
    };
    let says = |value: &Value, word: &str| match value {
        Value::BulkString(bytes) => bytes == word.as_bytes(),
        Value::SimpleString(text) => text == word,
        _ => false,
    };
    fields.windows(2).any(|pair| match pair {
        [name, mode] => says(name, "mode") && says(mode, "cluster"),
        _ => false,
    })
}

/// Whether a text is the URL of a server.
pub fn is_redis_url(text: &str) -> bool {
    redis::parse_redis_url(text).is_some() && text.into_connection_info().is_ok()
}

/// The servers in a list of URLs, without what is secret in them.
pub(super) fn servers(urls: &[String]) -> String {
    let server = |url: &String| {
        let info = url.as_str().into_connection_info();
        info.map_or_else(
            |_| "an unreadable address".to_owned(),
            |info| info.addr().to_string(),
        )
    };
    urls.iter().map(server).collect::<Vec<_>>().join(", ")
}
