// The npm package `eventsource`, as it comes: prints each event, and how it came to its end by itself.
import { EventSource } from 'eventsource';

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const source = new EventSource(process.argv[2]);
let connections = 0;

source.onopen = () => { connections += 1; };
source.onmessage = (message) => say({ id: message.lastEventId, data: message.data });
source.onerror = (error) => {
  if (source.readyState === EventSource.CLOSED) say({ status: error.code, connections });
};
