import test from 'ava';
import { killTrainings } from './kills.js';

test('a training that is killed and resumed is the one that nobody killed, to the bit', async (t) => {
  const { differences, kills } = await killTrainings(6, 3);
  t.is(kills, 6);
  t.deepEqual(differences, []);
});
