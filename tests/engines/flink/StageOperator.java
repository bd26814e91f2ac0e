import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleProgressResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleRequest.CacheToken;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.StateKey.TypeCase;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.StateRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.StateResponse;
import org.apache.beam.model.pipeline.v1.MetricsApi;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.runners.core.StateNamespaces;
import org.apache.beam.runners.core.TimerInternals.TimerData;
import org.apache.beam.runners.core.construction.Timer;
import org.apache.beam.runners.core.construction.graph.ExecutableStage;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.runners.fnexecution.state.StateRequestHandlers;
import org.apache.beam.runners.fnexecution.state.StateRequestHandlers.BagUserStateHandler;
import org.apache.beam.runners.fnexecution.state.StateRequestHandlers.BagUserStateHandlerFactory;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.VarLongCoder;
import org.apache.beam.sdk.fn.data.FnDataReceiver;
import org.apache.beam.sdk.state.TimeDomain;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.transforms.windowing.PaneInfo;
import org.apache.beam.sdk.util.WindowedValue;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.vendor.grpc.v1p60p1.com.google.protobuf.ByteString;
import org.apache.beam.vendor.grpc.v1p60p1.com.google.protobuf.Struct;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.python.shaded.org.joda.time.Instant;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/**
 * A fused stage: bundles of elements and timers go to a Python worker, its state and timers are Flink's.
 *
 * <p>A bundle ends with so many elements, after so many milliseconds, before every checkpoint (so that a
 * checkpoint holds all state and timers that its elements have set), and when the watermark moves.
 */
final class StageOperator extends AbstractStreamOperator<Tuple2<Integer, byte[]>>
    implements OneInputStreamOperator<byte[], Tuple2<Integer, byte[]>>, Triggerable<String, String> {
  private final byte[] payload;
  private final List<String> outputs;
  private final PortablePipeline.Options options;

  private transient ExecutableStage stage;
  private transient Workers workers;
  private transient StageBundleFactory bundles;
  private transient RemoteBundle bundle;
  private transient int inBundle;
  private transient boolean ends;

  private transient Coder<WindowedValue<Object>> inputCoder;
  private transient Coder<Object> keyCoder;
  private transient Coder<BoundedWindow> windowCoder;
  private transient List<Coder<WindowedValue<Object>>> outputCoders;

  private transient Map<String, LongCounter> counters;

  /** What a worker sent, from the threads that hear it. */
  private transient ConcurrentLinkedQueue<Tuple2<Integer, byte[]>> sent;

  private transient ConcurrentLinkedQueue<KV<Timer<?>, TimerData>> set;

  /** Guards Flink's current key, and with it all state: workers ask for state while elements are sent. */
  private transient Object keyed;

  private transient MapState<String, byte[]> cells;
  private transient MapState<String, Long> pending;
  private transient InternalTimerService<String> timers;
  private transient List<KV<String, KV<String, Long>>> due;

  StageOperator(byte[] payload, List<String> outputs, PortablePipeline.Options options) {
    this.payload = payload;
    this.outputs = outputs;
    this.options = options;
  }

  private boolean isKeyed() {
    return stage.getUserStates().size() + stage.getTimers().size() > 0;
  }

  @Override
  @SuppressWarnings({"unchecked", "rawtypes"})
  public void open() throws Exception {
    super.open();
    stage = ExecutableStage.fromPayload(RunnerApi.ExecutableStagePayload.parseFrom(payload));
    sent = new ConcurrentLinkedQueue<>();
    set = new ConcurrentLinkedQueue<>();
    due = new ArrayList<>();
    counters = new HashMap<>();
    keyed = new Object();
    RunnerApi.Components components = stage.getComponents();
    inputCoder = PortablePipeline.coder(components, stage.getInputPCollection().getId());
    windowCoder = PortablePipeline.windowCoder(inputCoder);
    outputCoders = new ArrayList<>();
    for (String output : outputs) {
      outputCoders.add(PortablePipeline.coder(components, output));
    }
    if (isKeyed()) {
      keyCoder = PortablePipeline.keyCoder((Coder) inputCoder);
      cells =
          getRuntimeContext().getMapState(
              new MapStateDescriptor<>("cells", Types.STRING, PortablePipeline.BYTES));
      pending = getRuntimeContext().getMapState(new MapStateDescriptor<>("pending", Types.STRING, Types.LONG));
      timers = getInternalTimerService("timers", StringSerializer.INSTANCE, this);
    }
    JobInfo job =
        JobInfo.create(
            getRuntimeContext().getJobInfo().getJobId().toString(),
            getRuntimeContext().getJobInfo().getJobName(),
            "",
            Struct.getDefaultInstance());
    workers = Workers.of(job);
    bundles = workers.factory.forStage(stage);
  }

  @Override
  public void close() throws Exception {
    try (AutoCloseable first = workers;
        AutoCloseable second = bundles) {
      bundle = null;
    } finally {
      super.close();
    }
  }

  /** One Python worker for all stages of a job in this process. */
  private static final class Workers implements AutoCloseable {
    private static final Map<String, Workers> SHARED = new HashMap<>();

    final DefaultJobBundleFactory factory;
    private final String job;
    private int users;

    private Workers(JobInfo job) {
      this.job = job.jobId();
      factory = DefaultJobBundleFactory.create(job);
    }

    static Workers of(JobInfo job) {
      synchronized (SHARED) {
        Workers found = SHARED.computeIfAbsent(job.jobId(), id -> new Workers(job));
        found.users++;
        return found;
      }
    }

    @Override
    public void close() throws Exception {
      synchronized (SHARED) {
        if (--users == 0) {
          SHARED.remove(job);
          factory.close();
        }
      }
    }
  }

  // Keys are set under the lock, by us.
  @Override
  public void setKeyContextElement1(StreamRecord ignored) {}

  @Override
  public void processElement(StreamRecord<byte[]> record) throws Exception {
    mainInput().accept(PortablePipeline.decode(inputCoder, record.getValue()));
    inBundle++;
    emit();
    if (inBundle >= options.number("max_bundle_size", 100)) {
      endBundle();
    }
  }

  @SuppressWarnings("unchecked")
  private FnDataReceiver<Object> mainInput() throws Exception {
    begin();
    return bundle.getInputReceivers().values().iterator().next();
  }

  private void begin() throws Exception {
    if (bundle != null) {
      return;
    }
    OutputReceiverFactory receivers =
        new OutputReceiverFactory() {
          @Override
          @SuppressWarnings("unchecked")
          public <T> FnDataReceiver<T> create(String collection) {
            int number = outputs.indexOf(collection);
            Coder<WindowedValue<Object>> coder = outputCoders.get(number);
            return element ->
                sent.add(
                    Tuple2.of(number, PortablePipeline.encode(coder, (WindowedValue<Object>) element)));
          }
        };
    TimerReceiverFactory timersSet =
        new TimerReceiverFactory(bundles, (timer, data) -> set.add(KV.of(timer, data)), windowCoder);
    bundle = bundles.getBundle(receivers, timersSet, stateHandler(), new Counters());
    inBundle = 0;
    if (!ends) {
      ends = true;
      long until = getProcessingTimeService().getCurrentProcessingTime()
          + options.number("max_bundle_time_mills", 100);
      getProcessingTimeService().registerTimer(until, time -> {
        ends = false;
        endBundle();
      });
    }
  }

  private void endBundle() throws Exception {
    if (bundle == null) {
      return;
    }
    RemoteBundle ending = bundle;
    bundle = null;
    ending.close(); // waits for the worker, and fails if it failed
    emit();
    synchronized (keyed) {
      for (KV<Timer<?>, TimerData> each = set.poll(); each != null; each = set.poll()) {
        setTimer(each.getKey(), each.getValue());
      }
    }
  }

  private void emit() {
    for (Tuple2<Integer, byte[]> each = sent.poll(); each != null; each = sent.poll()) {
      output.collect(new StreamRecord<>(each));
    }
  }

  @Override
  public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
    endBundle();
    super.prepareSnapshotPreBarrier(checkpoint);
  }

  @Override
  public void finish() throws Exception {
    endBundle();
    super.finish();
  }

  /** Counters of the pipeline's own code, as accumulators "namespace name" of the job. */
  private final class Counters implements BundleProgressHandler {
    @Override
    public void onProgress(ProcessBundleProgressResponse ignored) {}

    @Override
    public void onCompleted(ProcessBundleResponse response) {
      for (MetricsApi.MonitoringInfo info : response.getMonitoringInfosList()) {
        if (info.getUrn().equals("beam:metric:user:sum_int64:v1")) {
          String name = info.getLabelsMap().get("NAMESPACE") + " " + info.getLabelsMap().get("NAME");
          try {
            counter(name).add(VarLongCoder.of().decode(info.getPayload().newInput()));
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      }
    }
  }

  private LongCounter counter(String name) {
    LongCounter known = counters.get(name);
    if (known == null) {
      known = new LongCounter();
      counters.put(name, known);
      getRuntimeContext().addAccumulator(name, known);
    }
    return known;
  }

  // State

  private StateRequestHandler stateHandler() {
    EnumMap<TypeCase, StateRequestHandler> handlers = new EnumMap<>(TypeCase.class);
    if (!stage.getUserStates().isEmpty()) {
      handlers.put(
          TypeCase.BAG_USER_STATE,
          StateRequestHandlers.forBagUserStateHandlerFactory(
              bundles.getProcessBundleDescriptor(), new Cells()));
    }
    StateRequestHandler all = StateRequestHandlers.delegateBasedUponType(handlers);
    // What a worker may keep of state from bundle to bundle, if it has a cache: it is of this attempt.
    CacheToken token =
        CacheToken.newBuilder()
            .setUserState(CacheToken.UserState.getDefaultInstance())
            .setToken(ByteString.copyFromUtf8(UUID.randomUUID().toString()))
            .build();
    return new StateRequestHandler() {
      @Override
      public CompletionStage<StateResponse.Builder> handle(StateRequest request) throws Exception {
        return all.handle(request);
      }

      @Override
      public Iterable<CacheToken> getCacheTokens() {
        return List.of(token);
      }
    };
  }

  private final class Cells implements BagUserStateHandlerFactory<ByteString, ByteString, BoundedWindow> {
    @Override
    public BagUserStateHandler<ByteString, ByteString, BoundedWindow> forUserState(
        String transform,
        String cell,
        Coder<ByteString> keys,
        Coder<ByteString> values,
        Coder<BoundedWindow> windows) {
      // The transform's own name, so that a savepoint is found by a pipeline that numbers anew.
      String prefix = stage.getComponents().getTransformsOrThrow(transform).getUniqueName() + "/" + cell + "/";
      return new BagUserStateHandler<>() {
        private String at(ByteString key, BoundedWindow window) throws Exception {
          setCurrentKey(PortablePipeline.flinkKey(key.toByteArray())); // it comes encoded
          return prefix + HexFormat.of().formatHex(PortablePipeline.encode(windows, window));
        }

        @Override
        public Iterable<ByteString> get(ByteString key, BoundedWindow window) {
          return locked(
              () -> {
                byte[] bytes = cells.get(at(key, window));
                List<ByteString> found = new ArrayList<>();
                ByteArrayInputStream rest = new ByteArrayInputStream(bytes == null ? new byte[0] : bytes);
                while (rest.available() > 0) {
                  found.add(values.decode(rest));
                }
                return found;
              });
        }

        @Override
        public void append(ByteString key, BoundedWindow window, Iterator<ByteString> added) {
          locked(
              () -> {
                String place = at(key, window);
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                byte[] before = cells.get(place);
                if (before != null) {
                  bytes.write(before);
                }
                while (added.hasNext()) {
                  values.encode(added.next(), bytes);
                }
                cells.put(place, bytes.toByteArray());
                return null;
              });
        }

        @Override
        public void clear(ByteString key, BoundedWindow window) {
          locked(
              () -> {
                cells.remove(at(key, window));
                return null;
              });
        }
      };
    }
  }

  private interface Work<T> {
    T done() throws Exception;
  }

  private <T> T locked(Work<T> work) {
    synchronized (keyed) {
      try {
        return work.done();
      } catch (Exception error) {
        throw new RuntimeException(error);
      }
    }
  }

  // Timers: their place is "transform family tag window", each part in hexadecimal but the first two

  private void setTimer(Timer<?> timer, TimerData data) throws Exception {
    if (data.getDomain() != TimeDomain.EVENT_TIME) {
      throw new UnsupportedOperationException("timers in " + data.getDomain());
    }
    KV<String, String> id = TimerReceiverFactory.decodeTimerDataTimerId(data.getTimerFamilyId());
    BoundedWindow window = ((StateNamespaces.WindowNamespace<?>) data.getNamespace()).getWindow();
    String name = stage.getComponents().getTransformsOrThrow(id.getKey()).getUniqueName();
    String place =
        String.join(
            "\n",
            name,
            id.getValue(),
            timer.getDynamicTimerTag(),
            HexFormat.of().formatHex(PortablePipeline.encode(windowCoder, window)));
    setCurrentKey(PortablePipeline.flinkKey(PortablePipeline.encode(keyCoder, timer.getUserKey())));
    Long before = pending.get(place);
    if (before != null) {
      timers.deleteEventTimeTimer(place, before);
      pending.remove(place);
    }
    if (!timer.getClearBit()) {
      long moment = timer.getFireTimestamp().getMillis();
      timers.registerEventTimeTimer(place, moment);
      pending.put(place, moment);
    }
  }

  @Override
  public void onEventTime(InternalTimer<String, String> timer) throws Exception {
    pending.remove(timer.getNamespace());
    due.add(KV.of(timer.getKey(), KV.of(timer.getNamespace(), timer.getTimestamp())));
  }

  @Override
  public void onProcessingTime(InternalTimer<String, String> timer) {
    throw new IllegalStateException("no such timers are set");
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    endBundle();
    if (isKeyed()) {
      // A timer may set the next one, which may be due as well.
      do {
        due.clear();
        synchronized (keyed) {
          getTimeServiceManager().get().advanceWatermark(mark);
        }
        for (KV<String, KV<String, Long>> each : due) {
          fire(each.getKey(), each.getValue().getKey(), each.getValue().getValue());
        }
        endBundle();
      } while (!due.isEmpty());
    }
    output.emitWatermark(mark);
  }

  private void fire(String key, String place, long moment) throws Exception {
    String[] parts = place.split("\n", -1);
    begin();
    String transform = null;
    for (var each : stage.getTimers()) {
      if (each.transform().getTransform().getUniqueName().equals(parts[0])) {
        transform = each.transform().getId();
      }
    }
    BoundedWindow window = PortablePipeline.decode(windowCoder, HexFormat.of().parseHex(parts[3]));
    Instant at = new Instant(moment);
    Timer<Object> timer =
        Timer.of(
            PortablePipeline.decode(keyCoder, PortablePipeline.keyBytes(key)),
            parts[2],
            Collections.singleton(window),
            at,
            at,
            PaneInfo.NO_FIRING);
    @SuppressWarnings("rawtypes")
    FnDataReceiver<Timer> receiver = (FnDataReceiver) bundle.getTimerReceivers().get(KV.of(transform, parts[1]));
    receiver.accept(timer);
  }
}
