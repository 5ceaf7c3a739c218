-- verb: add
-- from: new
-- to: waiting or delayed
-- what: or finds the queued job of that identifier and moves it up; finds or creates the queue
--
-- ARGV[1]  job model
-- ARGV[2]  queue model
-- ARGV[3]  identifier
-- ARGV[4]  queue name
-- ARGV[5]  priority
-- ARGV[6]  options: '', or JSON: {prepend: true; delay: '+<microseconds>' or '<microseconds since the epoch>';
--          mode: 'custom' leaves the placing to the caller, 'reserve' and 'reserve custom' make nothing new, but give a pk;
--          pk: that was reserved}
-- ARGV[7…] fields of a new job: field, value…
--
-- JSON:
-- {'added', pk, reindex}      {'reserved', pk}      {'not unique', field, value, pk of its owner}
-- {'existing', pk}            {'moved', pk, reindex}
-- {'outranked', pk}           mode 'custom': an existing job that the caller has to move

--@include adding

local options = ARGV[6] ~= '' and cjson.decode(ARGV[6]) or {}
local where = {
  model = model_of(ARGV[2]), name = ARGV[4], priority = ARGV[5], prepend = options.prepend, mode = options.mode,
  due = options.delay and due_at(options.delay),
}
return cjson.encode(add(model_of(ARGV[1]), ARGV[3], where, pairs_from(7), options.pk))
