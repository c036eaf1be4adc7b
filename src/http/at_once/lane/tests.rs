use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::ServerConfig;
use crate::http::stream::Stream;
use crate::http::{HttpContext, HttpSettings};
use crate::metrics::Metrics;

const REQUEST: &[u8] = b"GET /v1/keys/nobody/1 HTTP/1.1\r\n\r\n";
const POST: &[u8] = b"POST /v1/check/nobody HTTP/1.1\r\ncontent-length: 3\r\n\r\n1\n2";

/// Of a listener that has no keyspaces, so that every request is lent.
async fn lane() -> (Lane, TcpStream, Arc<Activity>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let activity = Arc::new(Activity::new(Arc::new(AtomicBool::new(false))));
    let observed = Observed::new(Stream::tcp(listener.accept().await.unwrap().0), Arc::clone(&activity));
    let settings = HttpSettings::new(&ServerConfig::default(), None, None);
    let at_once = AtOnce::new(Arc::new(HttpContext::new(BTreeMap::new(), Arc::new(Metrics::new()), settings)));
    (Lane::new(observed, Some(Arc::new(at_once))), client, activity)
}

/// Reads as hyper does to see whether the client is still there.
async fn nothing_to_read(lane: &mut Lane) {
    let mut byte = [0];
    assert!(futures_util::poll!(std::pin::pin!(lane.read(&mut byte))).is_pending());
}

#[tokio::test]
async fn a_request_is_lent_alone_and_the_lane_goes_on_once_it_is_answered() {
    let (mut lane, mut client, activity) = lane().await;
    for request in [REQUEST, POST, REQUEST] {
        client.write_all(request).await.unwrap();
        let mut got = vec![0; request.len()];
        lane.read_exact(&mut got).await.unwrap();
        assert_eq!(got, request);
        let in_flight = activity.begin(false);
        nothing_to_read(&mut lane).await;
        drop(in_flight);
        // It has been answered, and the answer is not out.
        nothing_to_read(&mut lane).await;
        lane.write_all(b"half").await.unwrap();
        nothing_to_read(&mut lane).await;
        assert!(matches!(lane.turn, Turn::Lent(_)));
        lane.flush().await.unwrap();
        nothing_to_read(&mut lane).await;
        assert!(matches!(lane.turn, Turn::Ours { look: false }) && lane.at_once.is_some());
    }
}

#[tokio::test]
async fn bytes_before_an_answer_is_out_are_hypers_and_so_are_all_after_them() {
    for together in [true, false] {
        let (mut lane, mut client, activity) = lane().await;
        let mut got = vec![0; REQUEST.len()];
        client.write_all(&if together { [REQUEST, REQUEST].concat() } else { REQUEST.to_vec() }).await.unwrap();
        lane.read_exact(&mut got).await.unwrap();
        assert!(matches!(lane.turn, Turn::Lent(_)));
        drop(activity.begin(false));
        if !together {
            client.write_all(REQUEST).await.unwrap();
        }
        lane.read_exact(&mut got).await.unwrap();
        assert_eq!((got.as_slice(), matches!(lane.turn, Turn::Hypers)), (REQUEST, true));
    }
}
