// Run with the path of a replay: prints its events as views read them.

import { readFileSync } from "node:fs";
import process from "node:process";

import { eventReader } from "../../assets/player/run/events.js";

const { records, events } = JSON.parse(readFileSync(process.argv[2], "utf8"));
process.stdout.write(JSON.stringify(events.map(eventReader(records))));
