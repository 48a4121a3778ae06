//! The layouts, compared with rdma-core's own headers by a C compiler.

use super::layout::*;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

/// A size or offset on which the headers and our layouts must agree.
struct Expected {
    c: String,
    value: usize,
}

/// `offset!(list, structure, field)`, or with the field's way in C if it differs.
macro_rules! offset {
    ($list:ident, $structure:ident, $($field:ident),+ $(,)?) => {
        $($list.push(Expected {
            c: format!("offsetof(struct {}, {})", stringify!($structure), stringify!($field)),
            value: offset_of!($structure, $field),
        });)+
    };
    ($list:ident, $structure:ident, $field:ident => $c:literal) => {
        $list.push(Expected {
            c: format!("offsetof(struct {}, {})", stringify!($structure), $c),
            value: offset_of!($structure, $field),
        })
    };
}

macro_rules! constant {
    ($list:ident, $($name:ident),+ $(,)?) => {
        $($list.push(Expected { c: format!("(size_t){}", stringify!($name)), value: $name as usize });)+
    };
}

/// Sizes of structures that are made here, or are elements of an array.
macro_rules! size {
    ($list:ident, $($structure:ident),+ $(,)?) => {
        $($list.push(Expected {
            c: format!("sizeof(struct {})", stringify!($structure)),
            value: size_of::<$structure>(),
        });)+
    };
}

fn expected() -> Vec<Expected> {
    let mut list = Vec::new();
    size!(
        list,
        ibv_context_ops,
        ibv_qp_cap,
        ibv_qp_init_attr,
        ibv_sge,
        ibv_send_wr,
        ibv_recv_wr,
        ibv_wc,
        ibv_device_attr,
        ibv_port_attr,
        rdma_conn_param,
    );
    offset!(list, ibv_device, node_type, transport_type);
    offset!(list, ibv_context_ops, poll_cq, req_notify_cq, post_send, post_recv);
    offset!(list, ibv_context, device, ops, cmd_fd, async_fd, num_comp_vectors);
    offset!(list, ibv_pd, context, handle);
    offset!(list, ibv_mr, context, pd, addr, length, handle, lkey, rkey);
    offset!(list, ibv_comp_channel, context, fd, refcnt);
    offset!(list, ibv_cq, context, channel, cq_context, handle, cqe);
    offset!(list, ibv_qp, context, qp_context);
    offset!(list, ibv_qp_cap, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,);
    offset!(list, ibv_qp_init_attr, qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    offset!(list, ibv_sge, addr, length, lkey);
    offset!(list, ibv_send_wr, wr_id, next, sg_list, num_sge, opcode, send_flags, invalidate_rkey);
    offset!(list, ibv_send_wr, remote_addr => "wr.rdma.remote_addr");
    offset!(list, ibv_send_wr, rkey => "wr.rdma.rkey");
    offset!(list, ibv_send_wr, _qp_type => "qp_type");
    offset!(list, ibv_send_wr, _bind_mw_or_tso => "bind_mw");
    offset!(list, ibv_recv_wr, wr_id, next, sg_list, num_sge);
    offset!(list, ibv_wc, wr_id, status, opcode, vendor_err, byte_len, invalidated_rkey, qp_num, src_qp);
    offset!(list, ibv_wc, wc_flags, pkey_index, slid, sl, dlid_path_bits);
    offset!(list, ibv_device_attr, fw_ver, node_guid, max_mr_size, max_qp, max_qp_wr, device_cap_flags);
    offset!(list, ibv_device_attr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom);
    offset!(list, ibv_device_attr, max_res_rd_atom, max_qp_init_rd_atom, max_pkeys, phys_port_cnt);
    offset!(list, ibv_port_attr, state, max_mtu, active_mtu, max_msg_sz, pkey_tbl_len, lmc);
    offset!(list, ibv_port_attr, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2);
    offset!(list, rdma_event_channel, fd);
    offset!(list, rdma_cm_id, verbs, channel, context, qp);
    offset!(list, rdma_cm_id, addr => "route.addr");
    offset!(list, rdma_addr, src_storage, dst_storage);
    offset!(list, rdma_conn_param, private_data, private_data_len, responder_resources, initiator_depth);
    offset!(list, rdma_conn_param, flow_control, retry_count, rnr_retry_count, srq, qp_num);
    offset!(list, rdma_cm_event, id, listen_id, event, status);
    offset!(list, rdma_cm_event, conn => "param.conn");
    constant!(list, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE);
    constant!(list, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ);
    constant!(list, IBV_QPT_RC, IBV_SEND_SIGNALED);
    constant!(list, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV);
    constant!(list, IBV_WC_SUCCESS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR);
    constant!(list, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR);
    constant!(list, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WITH_INV);
    constant!(list, RDMA_PS_TCP, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY);
    constant!(list, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED);
    constant!(list, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_ERROR);
    constant!(list, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED);
    constant!(list, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    list
}

/// The program's output, or why there is none.
fn compiled(source: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (code, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&code, source).map_err(|error| error.to_string())?;
    let built = Command::new("cc")
        .args(["-std=gnu11", "-o"])
        .arg(&program)
        .arg(&code)
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    let run = Command::new(&program).output().map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

#[test]
fn every_field_and_constant_in_use_is_where_the_headers_have_it() {
    let headers = "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";
    if let Err(reason) = compiled(&format!("{headers}int main(void) {{ return 0; }}\n")) {
        let reason = reason.lines().next().unwrap_or_default();
        println!("skipped: rdma-core's headers cannot be compiled (libibverbs-dev, librdmacm-dev): {reason}");
        return;
    }
    let expected = expected();
    let mut source = format!("{headers}int main(void) {{\n");
    for one in &expected {
        writeln!(source, "printf(\"%zu\\n\", (size_t){});", one.c).expect("a string takes it");
    }
    source.push_str("return 0; }\n");
    let output = compiled(&source).expect("the headers have every name");
    let values: Vec<usize> = output.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(values.len(), expected.len());
    for (one, value) in expected.iter().zip(values) {
        assert_eq!(one.value, value, "{}", one.c);
    }
}
