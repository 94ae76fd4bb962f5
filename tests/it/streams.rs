//! Many streams at once, half of which nobody reads: the others are whole, and what the rest cost is
//! bounded. The bench of this name measures it at full size.

#[path = "../../benches/streams/load.rs"]
mod load;

use tokio::net::TcpListener;

use crate::child::Serving;
use crate::support::soon;

const HALF: usize = 50;

#[tokio::test]
async fn streams_that_nobody_reads_cost_little_and_hold_up_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(load::provide(listener));
    let proxy = Serving::start(upstream, "", &[]);
    soon(load::fast(proxy.listen, 1, 1)).await;
    let idle = proxy.resident().0;
    let slow = soon(load::slow(proxy.listen, HALF, false)).await;
    soon(load::fast(proxy.listen, HALF, 200)).await;
    let over = proxy.resident().1.saturating_sub(idle) >> 20;
    assert!(over < 96, "{over} MiB");
    assert!(slow.iter().all(|reader| !reader.is_finished()));
}
