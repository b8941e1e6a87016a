// A thread of a model's crew, started by worker.js where the page may share memory.

import { assist } from "./crew.js";

self.onmessage = ({ data }) => assist(data);
