//! A million accounts that pgbench has made, against what psql says, statements counted at the server.

use std::process::Command;

use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::postgres::{Postgres, binary};

/// Invariant: flood-leaves-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_million_accounts_of_pgbench_are_guarded_as_psql_sees_them() {
    let postgres =
        Postgres::start_with(&["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"]);
    let database = postgres.create_database();
    let url = database.url();
    let made = Command::new(binary("pgbench")).args(["-i", "-s", "10", "-q", &url]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    database.psql("CREATE EXTENSION pg_stat_statements");
    // Every second account goes, so that present and absent ids lie side by side.
    database.psql("DELETE FROM pgbench_accounts WHERE aid % 2 = 0");
    let config = Config::new().keyspace("accounts", |k| {
        k.set("freshness", "static")
            .set("canary.sample_rate", 0)
            .set("deadline", "30s")
            .set("filter.expected_keys", 500_000)
            .backend(&url, "SELECT aid, bid, abalance FROM pgbench_accounts WHERE aid = $1")
            .set("backend.timeout", "25s")
            .source_sql("SELECT aid FROM pgbench_accounts")
    });
    let app = TestApp::start(&config).await;
    assert_eventually!(app.keyspace("accounts").state().as_str() == "enforcing", "{}", app.status("accounts").await);
    assert_eq!(app.status("accounts").await["last_rebuild"]["keys"], 500_000);

    // What psql says of two thousand ids in a row.
    let told = database.psql(
        "SELECT string_agg(json_build_object('aid', aid, 'bid', bid, 'abalance', \
        abalance)::text, E'\\n') FROM pgbench_accounts WHERE aid BETWEEN 400001 AND 402000",
    );
    let rows: std::collections::HashMap<u64, serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|row| (row["aid"].as_u64().unwrap(), row))
        .collect();
    assert_eq!(rows.len(), 1000);
    let reads = || -> u64 {
        let count = database.psql(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%abalance \
            FROM pgbench_accounts WHERE aid = $1%' AND query NOT LIKE '%pg_stat_statements%'",
        );
        count.trim().parse().unwrap()
    };
    let before = reads();
    let mut passed = 0;
    for aid in 400_001..=402_000u64 {
        let answer = app.get(&format!("/v1/keys/accounts/{aid}")).await;
        match rows.get(&aid) {
            Some(row) => assert_eq!((answer.status, answer.json()), (200, row.clone()), "{aid}"),
            None => {
                assert_eq!((answer.status, answer.body.len()), (404, 0), "{aid}");
                passed += u64::from(answer.header("bloomguard-source") == "backend");
            }
        }
    }
    assert_eq!(
        reads() - before,
        1000 + passed,
        "the server saw one read for each row and each false positive, and no more"
    );
    // 1,000 trials at 0.1 %: more than 12 false positives have a probability below one in 10⁹.
    assert!(passed <= 12, "{passed} of 1000 absent ids passed the filter");
    let guarded =
        app.metric("bloomguard_lookups_total{keyspace=\"accounts\",source=\"filter\",result=\"absent\"}").await;
    assert_eq!(guarded, (1000 - passed) as f64);
}
