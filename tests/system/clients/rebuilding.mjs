// An application that shows what a run's assistant says. An EventSource keeps it up to date; when the server
// can't go on from its last id, it is drawn anew from the snapshot and followed from there.
import { EventSource } from 'eventsource';

const [run] = process.argv.slice(2);
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
let text = '';
let stepBegan = 0;
let rebuilt = 0;

const show = (event) => {
  if (event.event_type === 'step_start') stepBegan = text.length;
  if (event.event_type === 'stream_reset') text = text.slice(0, stepBegan);
  if (event.event_type === 'text_delta') text += event.delta;
};

const follow = (url) => {
  const source = new EventSource(url);
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    show(event);
    say({ id: message.lastEventId, data: message.data });
  };
  source.onerror = async (error) => {
    if (source.readyState !== EventSource.CLOSED) return;
    if (error.code !== 410) {
      say({ status: error.code, text, rebuilt });
      return;
    }
    const snapshot = await (await fetch(`${run}/snapshot`)).json();
    const said = snapshot.messages.filter((message) => message.role === 'assistant');
    const parts = said.flatMap((message) => message.content).filter((part) => part.type === 'text');
    text = parts.map((part) => part.text).join('') + snapshot.open_text;
    stepBegan = text.length - snapshot.open_text.length;
    rebuilt += 1;
    follow(`${run}/events?after=${snapshot.last_event_id}`);
  };
};

follow(`${run}/events`);
