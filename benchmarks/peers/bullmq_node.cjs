// BullMQ for Node: what subject.py, inside.py and a peer's file do in Python.
'use strict';

const fs = require('fs');
const path = require('path');
const { FlowProducer, Queue, Worker } = require('bullmq');

const directory = process.env.BENCHMARK_MARKS;
const url = new URL(process.env.BENCHMARK_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const now = () => Number(process.hrtime.bigint()) / 1e9;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Marks, in the layout of inside.py: int64 jobs, double seconds.

const memory = Buffer.alloc(16);
let file;
let jobs = 0;

function mark(number) {
  if (!Number.isInteger(number)) throw new TypeError(`the argument was not read: ${number}`);
  if (file === undefined) {
    file = fs.openSync(path.join(directory, `${process.pid}.mark`), 'w+');
    fs.writeSync(file, memory, 0, 16, 0);
    const nobody = new Int32Array(new SharedArrayBuffer(4));
    while (!fs.existsSync(path.join(directory, 'open'))) Atomics.wait(nobody, 0, 0, 0.5);
  }
  jobs += 1;
  memory.writeBigInt64LE(BigInt(jobs), 0);
  memory.writeDoubleLE(now(), 8);
  fs.writeSync(file, memory, 0, 16, 0);
}

function readMarks() {
  const names = fs.readdirSync(directory).filter((name) => name.endsWith('.mark'));
  const marks = names.map((name) => fs.readFileSync(path.join(directory, name))).filter((text) => text.length === 16);
  return {
    jobs: marks.reduce((sum, text) => sum + Number(text.readBigInt64LE(0)), 0),
    last: Math.max(0, ...marks.map((text) => text.readDoubleLE(8))),
  };
}

// Jobs

let queue;
let producer;
const add = (number) => queue.add('nothing', { number });

const children = Number(process.env.BENCHMARK_CHILDREN || 0);
const node = (number) => ({ name: 'nothing', queueName: 'bench', data: { number } });
const addFlow = (number) =>
  producer.add({ ...node(number), children: Array.from({ length: children }, (_, child) => node(child)) });

async function addMany(count) {
  const began = now();
  for (let start = 0; start < count; start += 1000) {
    const numbers = Array.from({ length: Math.min(1000, count - start) }, (_, index) => start + index);
    await queue.addBulk(numbers.map((number) => ({ name: 'nothing', data: { number } })));
  }
  return { jobs: count, seconds: now() - began };
}

async function addSome(count) {
  const began = now();
  for (let number = 0; number < count; number += 1) await add(number);
  return { jobs: count, seconds: now() - began };
}

async function addFor(seconds) {
  const began = now();
  let count = 0;
  while (now() - began < seconds) {
    for (let number = 0; number < 50; number += 1) await add(count + number);
    count += 50;
  }
  return { jobs: count, seconds: now() - began };
}

async function addFlows(count) {
  const began = now();
  for (let number = 0; number < count; number += 1) await addFlow(number);
  return { jobs: count, seconds: now() - began };
}

const flowLatency = (samples, usual = 0) => latency(samples, usual, addFlow, children + 1);

async function latency(samples, usual = 0, addOne = add, begun = 1) {
  const found = [];
  const end = now() + 12;
  while (found.length < samples && (now() < end || !found.length)) {
    await pause(0.01 + Math.random() * (0.02 + usual));
    const known = readMarks().jobs;
    const began = now();
    await addOne(found.length);
    while (readMarks().jobs < known + begun) await pause(0.0005);
    found.push(readMarks().last - began);
  }
  return { seconds: found };
}

async function main(verb, argument) {
  if (verb === 'work') {
    const concurrency = Number(process.env.BENCHMARK_AT_ONCE || 0) || parseInt(argument, 10);
    const seconds = Number(process.env.BENCHMARK_SECONDS || 0);
    const nothing = async (job) => {
      mark(job.data.number);
      if (seconds) await pause(seconds);
    };
    const worker = new Worker('bench', nothing, { connection, concurrency });
    process.on('SIGTERM', () => worker.close().then(() => process.exit(0)));
    return;
  }
  queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  if (children) producer = new FlowProducer({ connection });
  const latencies = { latency, flow_latency: flowLatency };
  const usual = verb in latencies ? (await latencies[verb](20)).seconds.sort((a, b) => a - b)[10] : 0;
  if (verb === 'add_flows') await addFlows(20);
  else if (!['latency', 'flow_latency', 'fill'].includes(verb)) await addSome(20);
  if (verb === 'add_many') await addMany(20);
  console.log('ready');
  await new Promise((resolve) => process.stdin.once('data', resolve));
  const measures = { add: addFor, add_some: addSome, add_many: addMany, fill: addMany, add_flows: addFlows, ...latencies };
  console.log(JSON.stringify(await measures[verb](Number(argument), usual)));
  process.stdin.once('data', () => process.exit(0));
}

main(...process.argv.slice(2));
