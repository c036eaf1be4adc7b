//! Each layer around a handler that provokes it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::*;
use crate::buffers::Buffers;
use crate::http::BoxError;
use crate::http::answer::DataResponse;
use crate::http::problem::Problem;
use crate::metrics::{Metrics, Route};

async fn answer<S, B>(service: S, request: Request<B>) -> (u16, HeaderMap, String)
where
    S: Service<Request<B>, Response = DataResponse, Error = Infallible>,
{
    let response = service.oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

fn buffers() -> Arc<Buffers> {
    Buffers::new(1 << 20, Metrics::new().buffers)
}

fn hello() -> Result<DataResponse, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::test]
async fn a_panic_is_a_500_without_its_text() {
    let early =
        service_fn(|_: Request<()>| -> std::future::Ready<Result<DataResponse, Infallible>> { panic!("secret") });
    let late = service_fn(|_: Request<()>| async {
        tokio::task::yield_now().await;
        if Duration::ZERO.is_zero() {
            panic!("{} secret", 1);
        }
        hello()
    });
    for (status, headers, body) in [
        answer(CatchPanicLayer.layer(early), Request::new(())).await,
        answer(CatchPanicLayer.layer(late), Request::new(())).await,
    ] {
        assert_eq!(status, 500);
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(body.contains("/problems/internal") && !body.contains("secret"), "{body}");
    }
}

#[tokio::test]
async fn a_request_without_end_is_a_503_at_the_deadline() {
    let stuck = service_fn(|_: Request<()>| std::future::pending::<Result<DataResponse, Infallible>>());
    let (status, headers, body) =
        answer(DeadlineLayer::new(Duration::from_millis(20)).layer(stuck), Request::new(())).await;
    assert_eq!((status, headers["retry-after"].to_str().unwrap()), (503, "1"));
    assert!(body.contains("/problems/request-deadline"), "{body}");
    let quick = service_fn(|_: Request<()>| async { hello() });
    assert_eq!(answer(DeadlineLayer::new(Duration::ZERO).layer(quick), Request::new(())).await.0, 200);
}

/// Reads its body and reports errors as handlers do.
async fn echo<B>(request: Request<B>) -> Result<DataResponse, Infallible>
where
    B: hyper::body::Body<Data = Bytes, Error = BoxError> + Send,
{
    Ok(match request.into_body().collect().await {
        Ok(body) => Response::new(Full::new(body.to_bytes())),
        Err(error) => Problem::from_body_error(&*error, 5).response(),
    })
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413_whether_it_says_its_length_or_not() {
    let limited = || AdmissionLayer::new(BodyLimit::new(5, &buffers())).layer(service_fn(echo));
    let chunks = |chunks: &[&'static str]| {
        let frames: Vec<Result<_, Infallible>> =
            chunks.iter().map(|c| Ok(Frame::data(Bytes::from_static(c.as_bytes())))).collect();
        Request::new(StreamBody::new(futures_util::stream::iter(frames)))
    };
    assert_eq!(answer(limited(), chunks(&["abc", "de"])).await.2, "abcde", "the limit itself is allowed");
    let streamed = answer(limited(), chunks(&["abc", "def"])).await;
    // Rejected because of the declared length.
    let mut said = chunks(&[]);
    said.headers_mut().insert("content-length", HeaderValue::from_static("6"));
    for (status, _, body) in [streamed, answer(limited(), said).await] {
        assert_eq!(status, 413);
        assert!(body.contains("/problems/body-too-large") && body.contains("\"limit\":5"), "{body}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_400() {
    let frames = [Ok(Frame::data(Bytes::from_static(b"abc"))), Err(std::io::Error::other("reset"))];
    let request = Request::new(StreamBody::new(futures_util::stream::iter(frames)));
    let (status, _, body) =
        answer(AdmissionLayer::new(BodyLimit::new(5, &buffers())).layer(service_fn(echo)), request).await;
    assert_eq!(status, 400, "{body}");
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let service = || OmitBodyLayer.layer(service_fn(|_: Request<()>| async { hello() }));
    let request = |method| Request::builder().method(method).body(()).unwrap();
    assert_eq!(answer(service(), request("GET")).await.2, "hello");
    let (status, headers, body) = answer(service(), request("HEAD")).await;
    assert_eq!((status, headers["content-length"].to_str().unwrap(), body.as_str()), (200, "5", ""));
}

#[tokio::test]
async fn answers_are_counted_by_route_method_and_code() {
    let metrics = Arc::new(Metrics::new());
    let count =
        CountLayer::new(Arc::clone(&metrics), |path| if path == "/livez" { Route::Livez } else { Route::Unknown });
    let request = Request::builder().uri("/livez?x").body(()).unwrap();
    answer(count.layer(service_fn(|_: Request<()>| async { hello() })), request).await;
    let counted = r#"bloomguard_http_requests_total{route="livez",method="GET",code="200"} 1"#;
    assert!(metrics.render().contains(counted), "{}", metrics.render());
}
