use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::*;
use crate::support::redis::RedisServer;

async fn proxy(server: &RedisServer) -> ChaosProxy {
    ChaosProxy::start(server.port(), 1, |command| command[0] == b"GET").await
}

async fn connected(proxy: &ChaosProxy) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

async fn set(connection: &mut MultiplexedConnection, value: u32) -> redis::RedisResult<()> {
    redis::cmd("SET").arg("a").arg(value).query_async(connection).await
}

async fn get(connection: &mut MultiplexedConnection) -> redis::RedisResult<Option<u32>> {
    redis::cmd("GET").arg("a").query_async(connection).await
}

#[tokio::test]
async fn answers_take_a_round_trip_and_lost_segments_a_retransmission() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    let mut connection = connected(&proxy).await;
    proxy.set(Weather { round_trip: Duration::from_millis(100), ..Weather::default() });
    let start = Instant::now();
    set(&mut connection, 1).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
    proxy.set(Weather { loss: 0.3, ..Weather::default() });
    let (start, mut value) = (Instant::now(), 0);
    loop {
        let sent = Instant::now();
        value += 1;
        set(&mut connection, value).await.unwrap();
        if sent.elapsed() >= RETRANSMISSION {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is lost");
    }
    assert_eq!(get(&mut connection).await, Ok(Some(value)), "late and whole");
}

#[tokio::test]
async fn what_a_black_hole_held_arrives_when_it_heals() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    let mut connection = connected(&proxy).await;
    proxy.set(Weather { black_hole: true, ..Weather::default() });
    let sent = tokio::time::timeout(Duration::from_millis(200), set(&mut connection, 5)).await;
    assert!(sent.is_err(), "nothing passes");
    drop(connection);
    proxy.heal();
    let mut later = connected(&proxy).await;
    let start = Instant::now();
    while get(&mut later).await != Ok(Some(5)) {
        assert!(start.elapsed() < Duration::from_secs(60), "it never arrives");
    }
}

#[tokio::test]
async fn a_switch_cuts_connections_and_leads_elsewhere() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let proxy = proxy(&one).await;
    let mut connection = connected(&proxy).await;
    set(&mut connection, 1).await.unwrap();
    proxy.switch(other.port());
    assert!(get(&mut connection).await.is_err());
    assert_eq!(get(&mut connected(&proxy).await).await, Ok(None));
}

#[tokio::test]
async fn known_requests_are_cut_off_or_left_hanging() {
    let server = RedisServer::start();
    let proxy = proxy(&server).await;
    proxy.set(Weather { unanswered: 1.0, ..Weather::default() });
    let (mut cut, mut hung) = (0, 0);
    while cut == 0 || hung == 0 {
        let mut connection = connected(&proxy).await;
        set(&mut connection, 1).await.unwrap();
        match tokio::time::timeout(Duration::from_millis(300), get(&mut connection)).await {
            Ok(answer) => {
                assert!(answer.is_err(), "{answer:?}");
                cut += 1;
            }
            Err(_) => hung += 1,
        }
    }
    assert_eq!(proxy.known(), (cut + hung, cut + hung));
}
