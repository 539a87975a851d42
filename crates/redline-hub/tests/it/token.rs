//! Who sees the access token.

use redline_hub::HubOptions;
use redline_weights::Disk;
use tempfile::tempdir;

use crate::{model, options, pull, pull_with};
use redline_testing::hub::{ID, TestHub};

#[test]
fn the_token_is_sent_to_the_hub_and_to_no_other_host() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    let options = HubOptions { token: Some("hf_secret".to_owned()), ..options(&hub.endpoint) };
    pull_with(&options, ID, cache.path(), Disk::default()).0.unwrap();
    let requests = hub.requests();
    assert!(requests.iter().any(|request| request.to_storage));
    for request in requests {
        let expect = (!request.to_storage).then_some("Bearer hf_secret");
        assert_eq!(request.authorization.as_deref(), expect, "{}", request.path);
    }
}

#[test]
fn without_a_token_none_is_sent() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    pull(&hub, cache.path()).unwrap();
    assert!(hub.requests().iter().all(|request| request.authorization.is_none()));
}
