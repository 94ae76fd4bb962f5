//! A real Redis cluster for tests. Owns how it is put together. Its nodes end with the test.

use std::process::Command;
use std::time::{Duration, Instant};

use super::servers::RedisServer;

/// How long a cluster may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three masters with a replica each.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub fn start() -> Self {
        let settings = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--appendonly",
            "yes",
        ];
        let nodes: Vec<RedisServer> = (0..6).map(|_| RedisServer::start(&settings)).collect();
        let mut create = vec!["--cluster".to_owned(), "create".to_owned()];
        create.extend(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
        let output = Command::new("redis-cli").args(&create).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        let cluster = Self { nodes };
        cluster.wait("a cluster", |cluster| {
            cluster.nodes.iter().all(|node| {
                node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && node
                        .cli(&["INFO", "replication"])
                        .contains(if is_replica(node) {
                            "master_link_status:up"
                        } else {
                            "connected_slaves:1"
                        })
            })
        });
        cluster
    }

    pub fn url(&self) -> String {
        let urls: Vec<String> = self.nodes.iter().map(RedisServer::url).collect();
        urls.join(",")
    }

    /// Waits for something that the cluster does by itself.
    pub fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what} took too long");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Where a master is among the nodes.
    pub fn a_master(&self) -> usize {
        self.nodes
            .iter()
            .position(|node| !is_replica(node))
            .unwrap()
    }
}

/// Whether a server follows another.
pub fn is_replica(server: &RedisServer) -> bool {
    server.cli(&["ROLE"]).starts_with("slave")
}
