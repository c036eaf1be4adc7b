//! A backend that has lost its rows is not believed.

use crate::support::keyspace::{TestKeyspace, config};
use crate::support::{assert_eventually, eventually};

const STORMS: &str = "bloomguard_backend_absence_storms_total{keyspace=\"users\"}";

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn absences_of_a_backend_that_has_lost_its_rows_are_not_cached() {
    let ks = TestKeyspace::enforcing(config()).await;
    (0..1000).for_each(|i| ks.backend.remove(&format!("user:{i}")));
    for i in 0..200 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "404 backend");
    }
    // No row of these was ever asked for: the backend is asked for those that the build had seen.
    eventually("the storm is seen", || ks.metric(STORMS) == 1.0).await;
    // The rows are back: nothing of the storm is left, not even what was cached before it was seen.
    (0..1000).for_each(|i| ks.backend.commit(&format!("user:{i}")));
    for i in (0..200).rev() {
        assert_eventually!(ks.get(&format!("user:{i}")).await == "200 backend", "user:{i} is still absent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_false_positives_among_present_keys_are_no_storm() {
    let ks = TestKeyspace::enforcing(config()).await;
    let stranger = ks.false_positive();
    for i in 0..300 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
        let _ = ks.get_bypassing(&stranger).await;
        if i % 2 == 0 {
            let _ = ks.get_bypassing(&format!("user:{i}")).await;
        }
    }
    assert_eq!(ks.metric(STORMS), 0.0);
    assert_eq!(ks.get(&stranger).await, "404 hot", "a bypass refills the caches, with an absence too");
}
