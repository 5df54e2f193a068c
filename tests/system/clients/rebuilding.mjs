// An application that shows the text of a run's assistant, updated by an EventSource. When the server can't
// resume from its last id, it loads the snapshot and follows the stream from there.
import { EventSource } from 'eventsource';

const [run] = process.argv.slice(2);
const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
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
    print({ id: message.lastEventId, data: message.data });
  };
  source.onerror = async (error) => {
    if (source.readyState !== EventSource.CLOSED) return;
    if (error.code !== 410) {
      print({ status: error.code, text, rebuilt });
      return;
    }
    const snapshot = await (await fetch(`${run}/snapshot`)).json();
    const answers = snapshot.messages.filter((message) => message.role === 'assistant');
    const parts = answers.flatMap((message) => message.content).filter((part) => part.type === 'text');
    text = parts.map((part) => part.text).join('') + snapshot.open_text;
    stepBegan = text.length - snapshot.open_text.length;
    rebuilt += 1;
    follow(`${run}/events?cursor=${snapshot.last_event_id}`);
  };
};

follow(`${run}/events`);
