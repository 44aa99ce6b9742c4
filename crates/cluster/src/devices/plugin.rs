// SPDX-License-Identifier: Apache-2.0
//! gRPC service of a device plugin.

use std::pin::Pin;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::device::Device;
use super::resource::Resource;
use crate::kubelet::messages::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePluginOptions,
    Empty, ListAndWatchResponse, PreStartContainerRequest, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use crate::kubelet::services::device_plugin::device_plugin_server::DevicePlugin;

/// Most containers of a request, and most devices of a container.
const REQUESTED_MAX: usize = 4096;

/// Service of one resource.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) resource: Resource,
    /// The devices, as of the last check.
    pub(super) devices: watch::Receiver<Vec<Device>>,
}

/// Options of the plugin.
pub(super) fn options() -> DevicePluginOptions {
    DevicePluginOptions {
        pre_start_required: false,
        get_preferred_allocation_available: true,
    }
}

/// Runs a function that waits for the switch or reads files, outside of the thread of the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Status::internal(error.to_string()))?
}

fn check_number(number: usize, what: &str) -> Result<(), Status> {
    if number > REQUESTED_MAX {
        let text = format!("{number} {what}, expected at most {REQUESTED_MAX}");
        return Err(Status::invalid_argument(text));
    }
    Ok(())
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.devices.clone());
        let replies = lists.map(|devices| {
            Ok(ListAndWatchResponse {
                devices: devices.iter().map(Device::to_message).collect(),
            })
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        check_number(requests.len(), "containers")?;
        let resource = self.resource.clone();
        let work = move || -> Result<Vec<_>, Status> {
            let mut responses = Vec::new();
            for request in &requests {
                check_number(request.available_device_ids.len(), "available devices")?;
                let size = usize::try_from(request.allocation_size)
                    .map_err(|_| Status::invalid_argument("allocation_size is negative"))?;
                responses.push(ContainerPreferredAllocationResponse {
                    device_ids: resource.prefer(
                        &request.available_device_ids,
                        &request.must_include_device_ids,
                        size,
                    ),
                });
            }
            Ok(responses)
        };
        Ok(Response::new(PreferredAllocationResponse {
            container_responses: blocking(work).await?,
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        check_number(requests.len(), "containers")?;
        let resource = self.resource.clone();
        let work = move || -> Result<Vec<_>, Status> {
            let mut responses = Vec::new();
            for request in &requests {
                check_number(request.devices_ids.len(), "devices")?;
                let response = resource.allocate(&request.devices_ids);
                responses.push(response.map_err(Status::failed_precondition)?);
            }
            Ok(responses)
        };
        Ok(Response::new(AllocateResponse {
            container_responses: blocking(work).await?,
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }
}
