// SPDX-License-Identifier: Apache-2.0
//! The addresses that pods have, as objects in the API server. An object is owned by its pod, so that the garbage collector of Kubernetes
//! removes it with the pod, also if the node is gone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::pool::{Pool, PoolError};
use super::protocol::{AssignedAddresses, Holder, NetworkName, Request};
use crate::follow::bounded;
use crate::hash::hash;
use crate::resources::{Address, AddressSpec, Network};

/// Labels, whose values are hashes: names may be longer than values of labels.
const NETWORK: &str = "quietwire.io/network";
const NODE: &str = "quietwire.io/node";
/// The interface of a pod, whichever its container is.
const HOLDER: &str = "quietwire.io/holder";
/// The interface of a container.
const ATTACHMENT: &str = "quietwire.io/attachment";
/// The network configuration of the runtime, whose valid containers alone a GC lists.
const CONFIGURATION: &str = "quietwire.io/configuration";

/// Octets of the hashes.
const HASH: usize = 16;
/// Addresses that are tried for a pod while other nodes choose the same ones.
const ATTEMPTS: usize = 32;
/// Most requested addresses of an interface.
const REQUESTED_MAX: usize = 16;

/// Errors of requests for addresses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BookError {
    /// The network does not exist.
    #[error("Network '{0}' does not exist")]
    NoNetwork(NetworkName),
    /// The pod is in another namespace.
    #[error(
        "Network '{network}' has addresses for pods of its own namespace only, not of '{namespace}'"
    )]
    Namespace {
        /// The network.
        network: NetworkName,
        /// Namespace of the pod.
        namespace: String,
    },
    /// The garbage collector would take the addresses of a static pod back at once.
    #[error("Network '{0}': a static pod gets no addresses (use a Network without ranges)")]
    StaticPod(NetworkName),
    /// Too many requested addresses.
    #[error("more than 16 requested addresses")]
    TooMany,
    /// The network has no such address.
    #[error("Network '{network}': {cause}")]
    Pool {
        /// The network.
        network: NetworkName,
        /// The reason.
        cause: PoolError,
    },
    /// Other nodes took every chosen address at the same time.
    #[error("Network '{0}': other nodes took all chosen addresses")]
    Contention(NetworkName),
    /// A request to the API server failed.
    #[error("request to the API server: {0}")]
    Api(#[from] kube::Error),
}

impl BookError {
    /// Returns whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Contention(_) | Self::Api(_) => true,
            Self::Pool { cause, .. } => matches!(cause, PoolError::Full | PoolError::Taken(_)),
            Self::NoNetwork(_) | Self::Namespace { .. } | Self::StaticPod(_) | Self::TooMany => {
                false
            }
        }
    }
}

/// An address that an interface requires.
#[derive(Clone, Copy, Debug)]
enum Required {
    This(IpAddr),
    AnyOf { is_ipv4: bool },
}

impl Required {
    fn is_met_by(self, address: IpAddr) -> bool {
        match self {
            Self::This(required) => required == address,
            Self::AnyOf { is_ipv4 } => address.is_ipv4() == is_ipv4,
        }
    }
}

/// The addresses of all pods, for the agent of one node.
#[derive(Clone)]
pub(crate) struct Book {
    client: Client,
    node: String,
    /// Whether pods of the node may have addresses. A node without addresses sends no requests to collect them.
    may_have: Arc<AtomicBool>,
}

impl Book {
    pub(crate) fn new(client: Client, node: String) -> Self {
        Self {
            client,
            node,
            may_have: Arc::new(AtomicBool::new(true)),
        }
    }

    fn addresses(&self, network: &NetworkName) -> Api<Address> {
        Api::namespaced(self.client.clone(), &network.namespace)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`BookError`].
    pub(super) async fn answer(&self, request: &Request) -> Result<AssignedAddresses, BookError> {
        match request {
            Request::Add {
                network,
                holder,
                requested,
            } => {
                self.may_have.store(true, Ordering::Relaxed);
                return self.assign(network, holder, requested).await;
            }
            Request::Del {
                network,
                container,
                interface,
            } => {
                let attachment = attachment(network, container, interface);
                let selector = format!("{ATTACHMENT}={attachment}");
                self.remove(network, &self.list(network, &selector).await?)
                    .await?;
            }
            Request::Gc {
                network,
                configuration,
                valid,
            } => self.collect(network, configuration, valid).await?,
            Request::Status { network } => {
                self.pool(network).await?;
            }
        }
        Ok(AssignedAddresses::default())
    }

    /// Returns ranges and reservations of a network (verb `get` of `networks`).
    async fn pool(&self, network: &NetworkName) -> Result<Pool, BookError> {
        let all: Api<Network> = Api::namespaced(self.client.clone(), &network.namespace);
        let found = bounded(all.get_opt(&network.name)).await?;
        let found = found.ok_or_else(|| BookError::NoNetwork(network.clone()))?;
        Pool::new(&found.spec).map_err(at(network))
    }

    /// Returns the addresses with some labels (verb `list` of `addresses`).
    async fn list(&self, network: &NetworkName, selector: &str) -> Result<Vec<Address>, BookError> {
        let parameters = ListParams::default().labels(selector);
        let list = bounded(self.addresses(network).list(&parameters)).await?;
        Ok(list.items)
    }

    /// Gives an interface the addresses that it requests, or one of each family. An interface keeps those that it has already, as far as
    /// the network still has them: the sandbox of a pod may be made again, and ranges may change.
    async fn assign(
        &self,
        network: &NetworkName,
        holder: &Holder,
        requested: &[IpAddr],
    ) -> Result<AssignedAddresses, BookError> {
        if holder.namespace != network.namespace {
            return Err(BookError::Namespace {
                network: network.clone(),
                namespace: holder.namespace.clone(),
            });
        }
        if is_static(&holder.uid) {
            return Err(BookError::StaticPod(network.clone()));
        }
        if requested.len() > REQUESTED_MAX {
            return Err(BookError::TooMany);
        }
        let pool = self.pool(network).await?;
        for address in requested {
            pool.check(*address, &holder.pod).map_err(at(network))?;
        }
        let required: Vec<Required> = match requested {
            [] => pool
                .families()
                .map(|is_ipv4| Required::AnyOf { is_ipv4 })
                .collect(),
            requested => requested.iter().copied().map(Required::This).collect(),
        };
        let selector = format!("{NETWORK}={}", of_network(network));
        let present = self.list(network, &selector).await?;
        let mut taken: BTreeSet<IpAddr> = present.iter().filter_map(address_of).collect();
        let own = of_holder(network, holder);
        let mut made = Vec::new();
        let mut given = AssignedAddresses {
            mac: pool.mac(&holder.pod).map(str::to_owned),
            ..AssignedAddresses::default()
        };
        for required in required {
            let kept = present.iter().find(|it| {
                it.labels().get(HOLDER) == Some(&own)
                    && address_of(it).is_some_and(|address| {
                        required.is_met_by(address) && pool.describe(address).is_some()
                    })
            });
            let done = match kept {
                Some(kept) => self.reassign(network, holder, kept).await,
                None => {
                    let chosen = self.take(network, holder, &pool, required, &mut taken);
                    chosen.await.inspect(|address| made.push(address.clone()))
                }
            };
            match done {
                Ok(address) => given
                    .ips
                    .extend(address_of(&address).and_then(|it| pool.describe(it))),
                Err(error) => {
                    // An address that cannot be removed now is removed by the garbage collector, with the pod.
                    if let Err(left) = self.remove(network, &made).await {
                        tracing::warn!(
                            "cannot release the addresses of pod '{}': {left}",
                            holder.pod
                        );
                    }
                    return Err(error);
                }
            }
        }
        Ok(given)
    }

    /// Makes an address that no other object has (verb `create` of `addresses`).
    async fn take(
        &self,
        network: &NetworkName,
        holder: &Holder,
        pool: &Pool,
        required: Required,
        taken: &mut BTreeSet<IpAddr>,
    ) -> Result<Address, BookError> {
        for _ in 0..ATTEMPTS {
            let chosen = match required {
                Required::This(address) if taken.contains(&address) => {
                    Err(PoolError::Taken(address))
                }
                Required::This(address) => Ok(address),
                Required::AnyOf { is_ipv4 } => {
                    pool.choose(is_ipv4, &holder.pod, start(holder), taken)
                }
            };
            let address = chosen.map_err(at(network))?;
            let object = self.object(network, holder, address);
            let all = self.addresses(network);
            match bounded(all.create(&PostParams::default(), &object)).await {
                Ok(made) => {
                    taken.insert(address);
                    return Ok(made);
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    if let Some(own) = self.own(network, holder, address).await? {
                        return self.reassign(network, holder, &own).await;
                    }
                    // Another node was faster.
                    taken.insert(address);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(BookError::Contention(network.clone()))
    }

    /// Returns the object of an address, if the interface has that already. The client repeats a `create` whose reply was lost, and the
    /// object from the first time is then in the way.
    async fn own(
        &self,
        network: &NetworkName,
        holder: &Holder,
        address: IpAddr,
    ) -> Result<Option<Address>, BookError> {
        let selector = format!("{HOLDER}={}", of_holder(network, holder));
        let present = self.list(network, &selector).await?;
        let is_it = |it: &Address| address_of(it) == Some(address);
        Ok(present.into_iter().find(is_it))
    }

    /// Gives an address of an interface to its present container (verb `patch` of `addresses`).
    async fn reassign(
        &self,
        network: &NetworkName,
        holder: &Holder,
        kept: &Address,
    ) -> Result<Address, BookError> {
        let attachment = attachment(network, &holder.container, &holder.interface);
        if kept.labels().get(ATTACHMENT) == Some(&attachment) {
            return Ok(kept.clone());
        }
        // Nothing may have changed meanwhile.
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": kept.metadata.resource_version,
                "labels": { ATTACHMENT: attachment, CONFIGURATION: of_configuration(&holder.configuration) },
            },
            "spec": { "container": holder.container },
        }));
        let all = self.addresses(network);
        let parameters = PatchParams::default();
        Ok(bounded(all.patch(&kept.name_any(), &parameters, &patch)).await?)
    }

    /// Returns the object of an address.
    fn object(&self, network: &NetworkName, holder: &Holder, address: IpAddr) -> Address {
        let spec = AddressSpec {
            network: network.name.clone(),
            address: address.to_string(),
            pod: holder.pod.clone(),
            interface: holder.interface.clone(),
            container: holder.container.clone(),
            node: self.node.clone(),
        };
        let mut object = Address::new(&name(network, address), spec);
        let labels = [
            (NETWORK, of_network(network)),
            (NODE, self.of_node()),
            (HOLDER, of_holder(network, holder)),
            (
                ATTACHMENT,
                attachment(network, &holder.container, &holder.interface),
            ),
            (CONFIGURATION, of_configuration(&holder.configuration)),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value));
        object.metadata.labels = Some(labels.into());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: holder.pod.clone(),
            uid: holder.uid.clone(),
            ..OwnerReference::default()
        }]);
        object
    }

    /// Removes addresses of this node and of a network configuration whose containers and interfaces are not valid.
    async fn collect(
        &self,
        network: &NetworkName,
        configuration: &str,
        valid: &[(String, String)],
    ) -> Result<(), BookError> {
        let valid: BTreeSet<String> = valid
            .iter()
            .map(|(container, interface)| attachment(network, container, interface))
            .collect();
        let selector = format!(
            "{NETWORK}={},{NODE}={},{CONFIGURATION}={}",
            of_network(network),
            self.of_node(),
            of_configuration(configuration)
        );
        let mut left = self.list(network, &selector).await?;
        left.retain(|it| {
            let attachment = it.labels().get(ATTACHMENT);
            attachment.is_none_or(|attachment| !valid.contains(attachment))
        });
        self.remove(network, &left).await
    }

    /// Returns the value of the label [`NODE`] for this node.
    fn of_node(&self) -> String {
        hash(&[self.node.as_str()], HASH)
    }

    /// Returns the addresses of all pods of this node (verb `list` of `addresses`). Sends no request if the node had none and has given none
    /// since.
    ///
    /// # Errors
    /// [`BookError::Api`].
    pub(crate) async fn of_pods(&self) -> Result<Vec<Address>, BookError> {
        // An address that is given during the request sets it again.
        if !self.may_have.swap(false, Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let all: Api<Address> = Api::all(self.client.clone());
        let parameters = ListParams::default().labels(&format!("{NODE}={}", self.of_node()));
        let listed = bounded(all.list(&parameters)).await;
        let has_none = listed.as_ref().is_ok_and(|list| list.items.is_empty());
        if !has_none {
            self.may_have.store(true, Ordering::Relaxed);
        }
        Ok(listed?.items)
    }

    /// Returns whether the pod of an address exists and has ended (verb `get` of `pods`): it is in phase Succeeded or Failed, which is final.
    /// The addresses of a pod that does not exist are those of the garbage collector.
    ///
    /// # Errors
    /// [`BookError::Api`].
    pub(crate) async fn has_ended(&self, address: &Address) -> Result<bool, BookError> {
        let namespace = address.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let Some(pod) = bounded(pods.get_opt(&address.spec.pod)).await? else {
            return Ok(false);
        };
        let mut owners = address.owner_references().iter();
        // A pod that was made again under the same name is another one.
        let is_owner = owners.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
        let phase = pod.status.and_then(|status| status.phase);
        Ok(is_owner && matches!(phase.as_deref(), Some("Succeeded" | "Failed")))
    }

    /// Removes an address, unless it was changed since it was read.
    ///
    /// # Errors
    /// [`BookError::Api`].
    pub(crate) async fn release(&self, address: &Address) -> Result<(), BookError> {
        let network = NetworkName {
            namespace: address.namespace().unwrap_or_default(),
            name: address.spec.network.clone(),
        };
        self.remove(&network, std::slice::from_ref(address)).await
    }

    /// Removes addresses (verb `delete` of `addresses`). One that is gone already is removed. Continues if the API server
    /// refuses to delete one.
    ///
    /// # Errors
    /// The first refusal, or the lack of a reply.
    async fn remove(&self, network: &NetworkName, addresses: &[Address]) -> Result<(), BookError> {
        let all = self.addresses(network);
        let mut removed: Result<(), BookError> = Ok(());
        for address in addresses {
            // Not another object that got the name meanwhile, and not one that a new container has.
            let parameters = DeleteParams::default().preconditions(Preconditions {
                uid: address.metadata.uid.clone(),
                resource_version: address.metadata.resource_version.clone(),
            });
            match bounded(all.delete(&address.name_any(), &parameters)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                // The API server keeps this one, perhaps because of a policy.
                Err(error @ kube::Error::Api(_)) => removed = removed.and(Err(error.into())),
                done => drop(done?),
            }
        }
        removed
    }
}

/// Adds the network to an error.
fn at(network: &NetworkName) -> impl FnOnce(PoolError) -> BookError {
    let network = network.clone();
    move |cause| BookError::Pool { network, cause }
}

/// Returns whether a UID is that of a static pod: 32 hexadecimal digits of a hash, not a UUID. The API server has another UID for such a pod.
fn is_static(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|it| it.is_ascii_hexdigit())
}

fn address_of(object: &Address) -> Option<IpAddr> {
    object.spec.address.parse().ok()
}

fn of_network(network: &NetworkName) -> String {
    hash(&[network.name.as_str()], HASH)
}

fn of_configuration(name: &str) -> String {
    hash(&[name], HASH)
}

fn of_holder(network: &NetworkName, holder: &Holder) -> String {
    let words = [network.name.as_str(), &holder.uid, &holder.interface];
    hash(&words, HASH)
}

fn attachment(network: &NetworkName, container: &str, interface: &str) -> String {
    hash(&[network.name.as_str(), container, interface], HASH)
}

/// Returns the number at which the search for an address of an interface begins: the same for the same interface.
fn start(holder: &Holder) -> u64 {
    let words = [holder.uid.as_str(), &holder.interface];
    let digits = hash(&words, size_of::<u64>());
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Returns the name of the object of an address. There is one for each address of a network: an address contains no dot here.
fn name(network: &NetworkName, address: IpAddr) -> String {
    let digits = match address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        IpAddr::V6(address) => format!("{:032x}", u128::from(address)),
    };
    format!("{}.{digits}", network.name)
}
