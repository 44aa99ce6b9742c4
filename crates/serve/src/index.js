// SPDX-License-Identifier: Apache-2.0
// Fills the tables of the first page, once a second, and starts studies. Texts become text nodes, never markup.
"use strict";

const SECOND = 1000;
const BILLION = 1e9;

function cell(content) {
  const td = document.createElement("td");
  td.append(content);
  return td;
}

function fill(id, rows) {
  const body = document.getElementById(id);
  body.replaceChildren(...rows.map((cells) => {
    const tr = document.createElement("tr");
    tr.append(...cells.map(cell));
    return tr;
  }));
}

function note(id, text) {
  const place = document.getElementById(id);
  if (place.textContent !== text) {
    place.textContent = text;
  }
}

function number(value) {
  return value === null ? "–" : Math.round(value).toLocaleString("en");
}

function percent(value) {
  return value === null ? "–" : (100 * value).toFixed(1) + " %";
}

function link(name) {
  const a = document.createElement("a");
  a.href = "/studies/" + encodeURIComponent(name);
  a.textContent = name;
  return a;
}

function latest(trial) {
  if (!trial) {
    return "–";
  }
  const when = new Date(trial.stored_unix_ns / BILLION * SECOND).toISOString();
  const loss = trial.is_valid ? percent(trial.loss_ratio) + " lost" : "invalid";
  return `${trial.case}, ${trial.frame_size}, ${number(trial.offered_rate_pps)} frames/s: ${loss} (${when})`;
}

async function get(path, options) {
  const response = await fetch(path, options);
  const content = await response.json();
  if (!response.ok) {
    throw new Error(content.error);
  }
  return content;
}

async function studies() {
  const list = await get("/api/studies");
  const all = list.studies;
  const others = list.not_listed === 0 ? "" : `, and ${number(list.not_listed)} that are not listed`;
  note("studies-note", all.length === 0 ? "The directory has no stores." : `${all.length} stores${others}`);
  fill("studies-rows", all.map((one) => one.error ? [one.name, one.error, "", "", "", "", ""] : [
    link(one.name), one.title, one.state, `${one.finished_steps} of ${one.planned_steps}`,
    number(one.trials), number(one.invalid_trials), latest(one.latest),
  ]));
}

function connections(all) {
  const table = all.connections;
  if (table === null) {
    return `Connections: ${all.connections_unavailable}`;
  }
  const refused = Object.entries(table.refused).filter(([, count]) => count > 0).map(([reason, count]) => `, ${number(count)} refused (${reason})`);
  return `Connections: ${number(table.total)} of ${number(table.max_entries)}, ${number(table.created_per_s)} new/s${refused.join("")}`;
}

async function view() {
  const all = await get("/api/switch");
  note("switch-note", `Running for ${number(all.uptime_s)} s`);
  fill("ports-rows", all.ports.map((port) => [
    port.name, port.state, number(port.rx_pps), number(port.tx_pps),
    Object.entries(port.drops).map(([reason, drop]) => `${reason}: ${number(drop.frames)} (${number(drop.pps)}/s)`).join(", "),
  ]));
  note("connections-note", connections(all));
  fill("threads-rows", all.threads.map((thread) => [
    String(thread.cpu), percent(thread.load), number(thread.rx_pps),
    thread.steps.filter((step) => step.share > 0).map((step) => {
      const cost = step.cycles_per_frame === null ? "" : `, ${number(step.cycles_per_frame)} cycles a frame`;
      return `${step.step} ${percent(step.share)}${cost}`;
    }).join("; "),
  ]));
}

async function partition() {
  const all = await get("/api/partition");
  const failed = all.open.filter((check) => check.verdict === "fail").length;
  const counts = `${all.passed} checks passed, ${failed} failed, ${all.open.length - failed} unknown`;
  note("partition-note", all.is_applied ? counts : "No partition is applied.");
  fill("checks-rows", all.open.map((check) => [check.name, check.verdict, check.expected, check.actual, check.remedy ?? ""]));
}

async function choices() {
  const list = await get("/api/ready-made");
  const options = list.studies.map((one) => new Option(`${one.name}: ${one.title}`, one.name));
  document.getElementById("start-study").replaceChildren(...options);
}

// A note about a refused request stays until a study has started.
let latestStart = null;

async function started() {
  const state = (await get("/api/started")).started;
  const text = JSON.stringify(state);
  if (state === null || text === latestStart) {
    return;
  }
  latestStart = text;
  const end = state.exit_code === null ? "ended by a signal" : `ended with exit code ${state.exit_code}`;
  note("start-note", `${state.study} (${state.store}): ${state.is_running ? "running" : end}`);
}

async function start() {
  const content = {
    study: document.getElementById("start-study").value,
    is_quick: document.getElementById("start-quick").checked,
  };
  const token = document.getElementById("start-token").value;
  try {
    await get("/api/studies", {
      method: "POST",
      headers: { "Authorization": `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify(content),
    });
  } catch (error) {
    note("start-note", String(error.message));
  }
}

async function refresh(load, id) {
  try {
    await load();
  } catch (error) {
    note(id, String(error.message));
  }
  setTimeout(refresh, SECOND, load, id);
}

document.getElementById("start-button").addEventListener("click", start);
choices().catch((error) => note("start-note", String(error.message)));
refresh(studies, "studies-note");
refresh(started, "start-note");
refresh(view, "switch-note");
refresh(partition, "partition-note");
