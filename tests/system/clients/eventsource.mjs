// The npm package `eventsource`, unchanged: prints each event, and the status that ended the stream.
import { EventSource } from 'eventsource';

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const source = new EventSource(process.argv[2]);
let connections = 0;

source.onopen = () => { connections += 1; };
source.onmessage = (message) => print({ id: message.lastEventId, data: message.data });
source.onerror = (error) => {
  if (source.readyState === EventSource.CLOSED) print({ status: error.code, connections });
};
