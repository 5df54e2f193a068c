// The npm package `eventsource-parser` under a fetch that reconnects with the last id until the stream ends.
import { createParser } from 'eventsource-parser';

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
let lastId;
let connections = 0;

for (;;) {
  const headers = { Accept: 'text/event-stream' };
  if (lastId !== undefined) headers['Last-Event-ID'] = lastId;
  let response;
  try {
    response = await fetch(process.argv[2], { headers });
  } catch {
    // The server is down, or the connection broke.
    await new Promise((resolve) => setTimeout(resolve, 50));
    continue;
  }
  if (response.status !== 200) {
    print({ status: response.status, connections });
    break;
  }
  connections += 1;
  const parser = createParser({
    onEvent: (event) => {
      lastId = event.id;
      print({ id: event.id, data: event.data });
    },
  });
  try {
    const text = new TextDecoder();
    for await (const bytes of response.body) parser.feed(text.decode(bytes, { stream: true }));
  } catch (error) {
    if (error.message !== 'terminated') throw error;
  }
}
